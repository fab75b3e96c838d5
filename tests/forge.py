"""A forge with the demo's scenery on it, served for real, and the adapters that work with it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from integrations.demo.scenery import REPO
from integrations.git.mirror import Mirrors
from integrations.gitea.client import GiteaClient
from integrations.gitea.merge import GiteaMerge, GiteaMergeConfig
from journal import Journal
from journal.journal import NewTask
from journal.plan import StepPlan
from journal.ports import Call
from journal.results import Result, Waiting
from journal.words import Guard, Kind
from tests.builders import StandingClock, pipeline
from tests.doubles.gitea import TOKEN, Gitea
from tests.doubles.serving import served
from tests.widgets import Widgets, build_widgets, call_about


@dataclass(slots=True)
class Forge:
    """The forge, what lies on it, and where it listens."""

    widgets: Widgets
    gitea: Gitea
    url: str
    folder: Path
    clock: StandingClock = field(default_factory=StandingClock)

    def client(self, token: str = TOKEN) -> GiteaClient:
        return GiteaClient(self.url, token)

    def mirrors(self) -> Mirrors:
        return Mirrors(self.folder / "clones", self.url, f"Authorization: token {TOKEN}")

    def merging(self, style: str = "merge", *, settle_s: float = 0, reply_s: float = 20) -> GiteaMerge:
        """A new adapter, as after a restart: it remembers nothing."""
        config = GiteaMergeConfig.model_validate({"style": style, "settle_s": settle_s, "reply_s": reply_s})
        return GiteaMerge(config, self.client(), self.mirrors(), self.clock)

    def call(self, n: int = 1, **more: Any) -> Call:
        call = call_about(self.widgets, n, **more)
        return replace(call, subject=replace(call.subject, pr=40 + n))

    def merges(self) -> int:
        """How often main was moved by a merge: counted in its first-parent line, past the first commit."""
        return int(self.widgets.git("rev-list", "--count", "--first-parent", "main")) - 1

    def changes(self, n: int = 1) -> int:
        """How often the change of task n was brought into its file on main."""
        return len(self.widgets.git("log", "--format=%H", "--first-parent", "main", "--", self.module(n)).split()) - 1

    def module(self, n: int = 1) -> str:
        return self.widgets.feature(n).module

    @contextlib.asynccontextmanager
    async def journal(self, step: GiteaMerge, deadline_ms: int = 600_000) -> AsyncIterator[Driver]:
        """The journal over this step: what a service is between two restarts."""
        plan = StepPlan("merge_pr", Guard.EXCLUSIVE, adopts=True, budget_ms=60_000, deadline_ms=deadline_ms)
        defined = pipeline(plan, lane=step.traits.lane)
        database = self.folder / "journal.db"
        async with Journal.open(database, pipeline=defined, steps={"merge_pr": step}, clock=self.clock) as journal:
            yield Driver(self, journal)


@dataclass(slots=True)
class Driver:
    """One life of the service."""

    forge: Forge
    journal: Journal

    async def open(self, n: int = 1, head: str = "") -> None:
        feature = self.forge.widgets.feature(n)
        wanted = NewTask(f"WID-{n}", REPO, feature.branch, head=head or feature.head, pr=40 + n)
        await self.journal.open_task(wanted, actor="operator")

    async def advance(self, n: int = 1, actor: str = "worker") -> Result:
        return await self.journal.advance(f"WID-{n}", actor=actor)

    async def settle(self, n: int = 1, looks: int = 40) -> Result:
        """Advance until it no longer waits, each next look when it is due."""
        result = await self.advance(n)
        while isinstance(result, Waiting) and looks:
            self.forge.clock.us += result.look_ms * 1000
            result, looks = await self.advance(n), looks - 1
        return result

    async def stage(self, n: int = 1) -> str:
        return (await self.journal.stream(f"WID-{n}")).state.stage

    async def count(self, kind: Kind, n: int = 1) -> int:
        return [event.kind for event in await self.journal.events(f"WID-{n}")].count(kind)

    async def bodies(self, kind: Kind, n: int = 1) -> str:
        """The bodies of all events of a kind, as stored."""
        events = await self.journal.events(f"WID-{n}")
        return "\n".join(event.body_text for event in events if event.kind is kind)


@contextlib.asynccontextmanager
async def forge_with(folder: Path, tasks: int = 1) -> AsyncIterator[Forge]:
    """Serve a forge with one open pull request for each of `tasks` feature branches, numbered from 41."""
    widgets = build_widgets(folder / "forge", tasks)
    gitea = Gitea(widgets.scenery.repository)
    for n in range(1, tasks + 1):
        gitea.open_pull(widgets.feature(n).branch)
    async with served(gitea) as url:
        yield Forge(widgets, gitea, url, folder)
        if gitea.faults.hold:
            gitea.faults.hold.set()
