"""
The storm: tasks driven through forge, tracker and deploys by the real service, which is killed again and again.

Here are the people and the restart policy; the weather is in `weather`, what came of it is counted in `outcome`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from integrations.demo.scenery import REPO
from tests.doubles import gitea, plane, telegram
from tests.doubles.serving import served
from tests.e2e.storm_stage import CHECK, SHOWN, STATES, WISHES, StormStage, build_storm_stage
from tests.e2e.weather import Storm, StormyGitea, StormyPlane, StormyTelegram

LOOK_S = 0.1
DEADLINE_S = (300.0, 120.0)
"""For hangs, for the run and for each of its tasks; no test rests on it."""
LIVES = ((1, 15), (10, 60), (40, 160))
"""Events that a service sees before it is killed: in the middle of its recovery, a little later, while it works."""

_POSITION = "SELECT coalesce(max(position), 0) FROM journal_events"
_OWNED = (
    "SELECT task, max(epoch) FROM journal_events WHERE task <> '' GROUP BY task HAVING "
    "coalesce(max(CASE kind WHEN 'acquired' THEN version END), 0) > coalesce(max(CASE WHEN kind IN "
    "('released', 'canceled', 'settled', 'paused', 'resumed', 'cancel_requested') THEN version END), 0)"
)


@dataclass(slots=True)
class Service:
    """The real service under a restart policy."""

    stage: StormStage
    port: int
    process: asyncio.subprocess.Process | None = None
    kills: int = 0
    ends: int = 0  # it was ended by its own deploy
    orphaned: set[tuple[str, int]] = field(default_factory=set)  # task and epoch of terms that were open when it died
    position: int = 0  # of the log, as last seen

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def kill(self) -> None:
        """At once, from wherever it is noticed that it is time."""
        if self.process is not None and self.runs:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)

    async def start(self) -> None:
        secrets = {
            "ORCH_GITEA_TOKEN": gitea.TOKEN, "ORCH_GITEA_WEBHOOK_SECRET": gitea.SECRET, "ORCH_PLANE_TOKEN": plane.KEY,
            "ORCH_PLANE_WEBHOOK_SECRET": plane.SECRET, "ORCH_TELEGRAM_TOKEN": telegram.TOKEN,
        }  # fmt: skip
        argv = [sys.executable, "-m", "integrations.cli", "--config", str(self.stage.config), "serve"]
        with self.stage.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, "--port", str(self.port), env={**os.environ, **secrets}, stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip

    async def buried(self) -> None:
        """Wait for a process that ends, and count what it leaves behind."""
        assert self.process is not None
        code = await self.process.wait()
        tail = self.stage.log.read_text("utf-8", "replace")[-3000:]
        assert code in (0, -signal.SIGKILL), f"the service failed with {code}:\n{tail}"
        self.kills += code != 0
        self.ends += code == 0
        # As a set: one that dies before it took up what its predecessor left leaves the same terms once more.
        self.orphaned.update((task, epoch) for task, epoch in self.rows(_OWNED))

    @property
    def orphans(self) -> int:
        """Terms that a death left open; each is reclaimed once."""
        return len(self.orphaned)

    async def stop(self) -> int:
        """End it as an operator does."""
        assert self.process is not None
        if self.runs:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()

    def rows(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        """Read beside the service, or from what it left."""
        if not self.stage.db.exists():
            return []
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"file:{self.stage.db}?mode=ro", uri=True)) as db,
        ):
            return db.execute(sql, given).fetchall()
        return []

    def grown(self) -> int:
        """Events written since this was asked last."""
        now = int((self.rows(_POSITION) or [(self.position,)])[0][0])
        before, self.position = self.position, max(self.position, now)
        return self.position - before

    def token(self) -> str:
        """The local token that the service made."""
        return (self.stage.db.with_name(self.stage.db.name + ".locks") / "local-token").read_text("ascii").strip()

    async def get(self, path: str) -> Any:
        """Ask; None while nobody answers."""
        with suppress(httpx.HTTPError):
            async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
                answer = await http.get(self.address + path)
            return answer.json() if answer.status_code == 200 else None
        return None

    async def post(self, path: str, body: Mapping[str, Any]) -> int:
        """Order; 0 while nobody answers."""
        with suppress(httpx.HTTPError, FileNotFoundError):
            headers = {"Authorization": f"Bearer {self.token()}"}
            async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
                return (await http.post(self.address + path, json=body, headers=headers)).status_code
        return 0


@dataclass(slots=True)
class Scenario:
    """One run: what takes part, and what people have done so far."""

    stage: StormStage
    storm: Storm
    service: Service
    forge: StormyGitea
    tracker: StormyPlane
    chat: StormyTelegram
    kills: int  # planned
    tasks: int
    people: random.Random
    lives: random.Random
    retries: Counter[str] = field(default_factory=Counter)  # parked tasks that the operator let go on
    _answered: set[tuple[int, int]] = field(default_factory=set)  # item and count of its moves, once per showing

    @property
    def deadline_s(self) -> float:
        return DEADLINE_S[0] + DEADLINE_S[1] * self.tasks

    async def run(self) -> None:
        """Until every task is done and everything is shown, in good weather at the end."""
        await self.open_tasks(range(1, self.tasks + 1))
        await self._until(lambda: self.done(self.tasks), "the tasks are not done")
        while self.service.kills < self.kills:  # a quiet service must bear it, too
            self.service.kill()
            await self.tick()
        self.storm.strike_at = 0
        self.storm.clear_up()
        await self.storm.delivered()
        await self._until(lambda: not self.unshown(self.tasks), "what is shown outside is not what the journal says")

    async def finish(self, n: int) -> None:
        """Until one more task is done and shown too."""
        await self._until(lambda: self.done(n) and not self.unshown(n), f"task {n} is not done, or not shown")

    async def ownership(self, told: Callable[[Any], bool]) -> Any:
        """The queue's block about owners, once it has told of something: counts are written a moment later."""
        ends_s = time.monotonic() + self.deadline_s
        while True:
            found = await self.service.get("/queue")
            if found is not None and (told(found["transition_ownership"]) or time.monotonic() > ends_s):
                return found["transition_ownership"]
            await self.tick()

    async def until_told(self, alerts: Callable[[Scenario], Awaitable[tuple[set[str], Mapping[str, int]]]]) -> None:
        """Until the chat has read of everything that a person must learn of."""
        ends_s = time.monotonic() + self.deadline_s
        while (found := await alerts(self))[0] - set(found[1]) and time.monotonic() < ends_s:
            await self.tick()

    async def open_tasks(self, which: range) -> None:
        """Change, pull request, work item and check for each, then the task itself."""
        for n in which:
            branch = self.stage.scenery.features[n - 1].branch
            number = self.forge.open_pull(branch)
            self.tracker.add(n, "Todo")
            head = self.forge.head(number)
            wait = self.people.randint(1, 60) if self.storm.raging else 0
            self.storm.later(wait, lambda head=head: self.forge.add_status(head, CHECK, "success"))  # type: ignore[misc]
            body = {"task": self.stage.task(n), "repo": REPO, "branch": branch, "head": head, "pr": number}
            while await self.service.post("/tasks", body | {"stage": "development"}) not in (201, 409):
                await self.tick()
        if not self.storm.raging:
            self.storm.clear_up()

    async def tick(self) -> None:
        """One look: at the process, the log, and what is shown to people."""
        if not self.service.runs:
            await self.service.buried()
            await self.service.start()
            self._arm()
        self.storm.observe(self.service.grown())
        for n in range(1, len(self.tracker.items) + 1):
            self._answer_item(n)
        await self._retry_parked()
        await asyncio.sleep(LOOK_S)

    def _arm(self) -> None:
        """Say when this life ends; one that its own deploy cut short leaves its end to the next."""
        if self.service.kills < self.kills and not self.storm.strike_at:
            self.storm.strike_at = self.storm.seen + self.lives.randint(*self.lives.choice(LIVES))

    def _answer_item(self, n: int) -> None:
        """A person sees an item that waits for one, thinks, and moves it."""
        wish = {"Review": "Approved", "Staging": "Confirm Deploy"}.get(self.tracker.state_of(n))
        shown = (n, len(self.tracker.activities.get(self.tracker.item(n), ())))
        if wish is None or shown in self._answered:
            return
        self._answered.add(shown)
        state = self.tracker.state_of(n)
        if state == "Staging" and n % 7 == 1:
            self._push_more(n)

        def move() -> None:
            if self.tracker.state_of(n) == state:
                self.tracker.move(n, wish)

        self.storm.later(self.people.randint(1, 25) if self.storm.raging else 0, move)

    def _push_more(self, n: int) -> None:
        """Somebody goes on working on a branch that is merged: it must not be deleted with that work."""
        head = self.forge.head(40 + n)
        commit = self.forge.git("commit-tree", f"{head}^{{tree}}", "-p", head, "-m", "Newer work")
        self.forge.git("update-ref", f"refs/heads/{self.stage.scenery.features[n - 1].branch}", commit)

    async def _retry_parked(self) -> None:
        """An operator who was told in the chat and on the pull request mends what is wrong, and lets the task go on."""
        for (task,) in self.service.rows("SELECT task FROM journal_view_tasks WHERE hold = 'parked'"):
            n = int(task.rpartition("-")[2])
            told = any(task in text for text in self.chat.texts)
            if not told or not any(c["issue_url"] == f"/issues/{40 + n}" for c in self.forge.comments):
                continue
            branch = f"refs/heads/{self.stage.scenery.features[n - 1].branch}"
            if self.forge.git("for-each-ref", branch):
                self.forge.git("update-ref", branch, self.forge.head(40 + n))
            if await self.service.post(f"/tasks/{task}/retry", {"reason": "looked at it", "actor": "operator"}) == 200:
                self.retries[task] += 1

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        ends_s = time.monotonic() + self.deadline_s
        while not holds():
            if time.monotonic() > ends_s:
                raise AssertionError(f"seed {self.storm.seed}: {what}\n{self.told()}")
            await self.tick()

    # -- what the journal says ----------------------------------------------------------------------------------------

    def rows(self) -> dict[str, tuple[str, str, str]]:
        """Stage, hold and reason of each task."""
        found = self.service.rows("SELECT task, stage, hold, reason FROM journal_view_tasks")
        return {task: (stage, hold, reason) for task, stage, hold, reason in found}

    def stage_of(self, task: str) -> str:
        return self.rows().get(task, ("", "", ""))[0]

    def done(self, tasks: int) -> bool:
        rows = self.rows()
        return all(rows.get(self.stage.task(n), ("",))[0] == "done" for n in range(1, tasks + 1))

    def unshown(self, tasks: int) -> list[str]:
        """Where tracker and forge do not show what the journal says."""
        found, rows = [], self.rows()
        for n in range(1, tasks + 1):
            task = self.stage.task(n)
            stage, hold, _ = rows[task]
            if self.tracker.state_of(n) != SHOWN[stage]:
                found.append(f"{task} is {stage}, the tracker shows {self.tracker.state_of(n)}")
            mine = [s for s in self.forge.statuses if s["context"] == f"transition-journal/{task}"]
            if not mine or mine[-1]["description"] != f"{stage} ({hold or 'on its way'})":
                found.append(f"{task} is {stage}, the forge shows {mine[-1]['description'] if mine else 'nothing'}")
        return found

    def told(self) -> str:
        """Everything that helps to find out why."""
        lines = [f"{task}: {row}" for task, row in sorted(self.rows().items())]
        lines += [f"item {n}: {self.tracker.state_of(n)}" for n in range(1, len(self.tracker.items) + 1)]
        lines += [f"folder {self.stage.folder}", f"struck: {self.forge.struck}", *self.unshown(self.tasks)]
        return "\n".join(lines)


@asynccontextmanager
async def scenario(folder: Path, seed: int, *, tasks: int, kills: int, more: int = 0) -> AsyncIterator[Scenario]:
    """Set the stage for `tasks`, with branches for `more`; nobody is left behind."""
    stage = build_storm_stage(folder, tasks + more)
    service = Service(stage, _free_port())
    storm = Storm(seed, service.kill)
    storm.address = service.address
    forge = StormyGitea(stage.scenery.repository, storm=storm, trouble=6 * tasks)
    tracker = StormyPlane(
        1 + seed % 2,
        storm=storm,
        trouble=4 * tasks,
        wishes=WISHES,
        states={n: plane.made_up(f"state {n}") for n in STATES},
    )
    chat = StormyTelegram(storm=storm)
    run = Scenario(
        stage, storm, service, forge, tracker, chat, kills, tasks, storm.chance("people"), storm.chance("lives")
    )
    tracker.stage_of = run.stage_of
    async with AsyncExitStack() as doubles:
        urls = {
            name: await doubles.enter_async_context(served(app))
            for name, app in (("forge", forge), ("tracker", tracker), ("chat", chat))
        }
        stage.write_config(urls)
        try:
            await service.start()
            run._arm()
            yield run
        finally:
            service.kill()
            if service.process is not None:
                await service.process.wait()
            storm.clear_up()
            await storm.delivered()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
