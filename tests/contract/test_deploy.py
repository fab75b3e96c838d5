"""A self-deploy with real processes, signals and locks: handed over once, deployed once, done only when it runs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from integrations.deploy import markers
from integrations.deploy.config import DeployVerifiedConfig, SelfDeployConfig
from integrations.deploy.initiate import SelfDeploy
from integrations.deploy.launch import deployer_argv, ensure_deployer
from integrations.deploy.ledger import Ledger
from integrations.deploy.markers import Initiated, Result, UnreadableError
from integrations.deploy.verified import DeployVerified
from journal.ports import Anchor, Call, Finding, Subject
from journal.words import Fact, Guard, Outcome, evidence

ROOT = Path(__file__).parents[2]
OLD, TARGET, NEWER = "1" * 40, "2" * 40, "3" * 40
JOURNAL = "j" * 32

COMMAND = """
import os, pathlib, sys, time
place, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
with open(place / "deploys", "a") as file:
    file.write(os.environ["TRANSITION_KEY"] + " " + os.environ["TRANSITION_FENCE"] + "\\n")
turns = 3000
while mode == "waits" and turns and not (place / "go").exists():
    turns -= 1
    time.sleep(0.02)
if mode == "fails":
    sys.exit("image missing")
if mode == "hangs":
    time.sleep(600)
(place / "version").write_text(os.environ["TRANSITION_TARGET"])
"""


@dataclass
class Term:
    fd: int

    def child_started(self, group: int) -> None: ...
    def child_ended(self, group: int) -> None: ...


class RealClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Place:
    """One installation: folder of markers, what was deployed, and the steps over it."""

    path: Path
    lock: int

    def config(self, mode: str = "", **more: object) -> SelfDeployConfig:
        command = (sys.executable, "-c", COMMAND, str(self.path), mode)
        base = {"folder": self.folder, "command": command, "command_budget_s": 20}
        return SelfDeployConfig.model_validate(base | more)

    @property
    def folder(self) -> Path:
        return self.path / "markers"

    def call(self, task: str = "ORCH-1", target: str = TARGET, **more: object) -> Call:
        call = Call(
            journal_id=JOURNAL,
            subject=Subject(task=task, repo="acme/widgets", branch="x"),
            generation=1,
            step="deploy_init",
            epoch=3,
            attempt=1,
            budget_s=20,
            term=Term(self.lock),
            anchor=Anchor(9, "c" * 64),
            outcomes=MappingProxyType(
                {"merge_pr": evidence(landed=target), "rebuild": evidence(digest="sha256:" + "d" * 64)}
            ),
        )
        return replace(call, **more)  # type: ignore[arg-type]

    def step(self, mode: str = "", **more: object) -> SelfDeploy:
        return SelfDeploy(self.config(mode, **more), RealClock(), self.running, is_ancestor)

    def verified(self) -> DeployVerified:
        return DeployVerified(DeployVerifiedConfig(folder=self.folder), self.running, is_ancestor)

    async def running(self) -> str | None:
        version = self.path / "version"
        return version.read_text() if version.exists() else None

    def deploys(self) -> list[str]:
        log = self.path / "deploys"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []

    def initiate(self, task: str = "ORCH-1", order: int = 1, **more: object) -> Initiated:
        marker = Initiated(
            key=f"{task}/1/deploy_init",
            epoch=3,
            attempt=1,
            journal=JOURNAL,
            cites="9:" + "c" * 64,
            main_sha=TARGET,
            digest="",
            environment="production",
            order=order,
            at_us=0,
        )
        marker = replace(marker, **more)  # type: ignore[arg-type]
        markers.write(markers.initiated_path(self.folder, marker.key), marker)
        return marker

    def deployer(self, config: SelfDeployConfig) -> subprocess.Popen[bytes]:
        return subprocess.Popen(deployer_argv(config), cwd=ROOT, stderr=subprocess.DEVNULL)

    def result(self, key: str) -> Result | None:
        return markers.read_result(self.folder, key)

    def lock_is_free(self) -> bool:
        other = os.open(self.path / "task.lock", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(other)
        return True


async def is_ancestor(first: str, second: str) -> bool | None:
    """A straight line of three commits; any other one is not in the repository."""
    line = [OLD, TARGET, NEWER]
    return line.index(first) <= line.index(second) if first in line and second in line else None


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    lock = os.open(tmp_path / "task.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    made = Place(tmp_path, lock)
    markers.prepare_folder(made.folder)
    (tmp_path / "version").write_text(OLD)
    yield made
    os.close(lock)


async def until(seen: Callable[[], object], turns: int = 1000) -> None:
    for _ in range(turns):
        if seen():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


KEY = "ORCH-1/1/deploy_init"


@pytest.mark.proves("V10", "R67", "FR-4")
async def test_a_deploy_is_handed_over_once_and_is_done_when_the_target_runs(place: Place) -> None:
    """The reply is never a success; the marker proves the hand-over, the running version proves the deploy."""
    step, call = place.step(), place.call()
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert (await place.verified().probe(call)).fact is Fact.ABSENT
    reply = await step.apply(call)
    assert reply.outcome is Outcome.UNKNOWN and ("result", "ok") in reply.seen
    found = await step.probe(call)
    assert found.fact is Fact.OURS
    assert {("fence", "3.1"), ("cites", "9:" + "c" * 64), ("main_sha", TARGET)} <= set(found.seen)
    assert (await place.verified().probe(call)).fact is Fact.OURS
    assert place.deploys() == [KEY]


@pytest.mark.proves("E3", "S8", "R67")
async def test_a_second_hand_over_of_a_key_is_refused_by_the_marker(place: Place) -> None:
    step = place.step()
    await step.apply(place.call())
    again = await step.apply(place.call(epoch=4, attempt=2))
    assert again.outcome is Outcome.UNKNOWN and "exists" in str(dict(again.seen)["reason"])
    assert place.deploys() == [KEY]


INITIATOR = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.contract import test_deploy as t
from integrations.deploy import initiate, markers

place = t.Place(Path(sys.argv[2]), os.open(Path(sys.argv[2]) / "task.lock", os.O_RDWR))
t.fcntl.flock(place.lock, t.fcntl.LOCK_EX)
when = sys.argv[3]
if when == "after-link":
    async def ensure(config): os.kill(os.getpid(), signal.SIGKILL)
    initiate.ensure_deployer = ensure
asyncio.run(place.step("waits").apply(place.call()))
"""


def start_initiator(place: Place, when: str) -> subprocess.Popen[bytes]:
    fcntl.flock(place.lock, fcntl.LOCK_UN)
    return subprocess.Popen([sys.executable, "-c", INITIATOR, str(ROOT), str(place.path), when])


@pytest.mark.proves("V10", "R59", "R60", "E5")
async def test_the_deployer_outlives_its_killed_initiator_and_does_not_hold_the_tasks_lock(place: Place) -> None:
    service = start_initiator(place, "while it deploys")
    await until(place.deploys)
    service.send_signal(signal.SIGKILL)
    service.wait()
    assert place.lock_is_free()
    assert (await place.step().probe(place.call(epoch=4))).fact is Fact.OURS
    assert (await place.verified().probe(place.call(epoch=4))).fact is Fact.ABSENT
    (place.path / "go").touch()
    await until(lambda: place.result(KEY))
    assert (await place.verified().probe(place.call(epoch=4))).fact is Fact.OURS
    assert place.deploys() == [KEY]


@pytest.mark.proves("V10", "R59", "R64")
async def test_an_initiator_killed_right_after_the_link_has_deployed_once_when_its_successor_starts(
    place: Place,
) -> None:
    service = start_initiator(place, "after-link")
    assert service.wait() == -signal.SIGKILL
    assert place.deploys() == []
    assert (await place.step().probe(place.call(epoch=4))).fact is Fact.OURS
    assert await ensure_deployer(place.config())
    await until(lambda: place.result(KEY))
    assert not await ensure_deployer(place.config())
    assert place.deploys() == [KEY]


@pytest.mark.proves("R38")
async def test_deployers_started_at_once_deploy_once(place: Place) -> None:
    place.initiate()
    for started in [place.deployer(place.config()) for _ in range(4)]:
        assert started.wait(20) == 0
    assert place.deploys() == [KEY]
    result = place.result(KEY)
    assert result and result.ok


async def test_a_marker_that_comes_while_a_deployer_works_is_not_forgotten(place: Place) -> None:
    """Its own deployer finds the lock busy and leaves; the one at work must look again."""
    place.initiate()
    at_work = place.deployer(place.config("waits"))
    await until(place.deploys)
    place.initiate("ORCH-2", 2)
    assert place.deployer(place.config("waits")).wait(20) == 0
    assert not await ensure_deployer(place.config("waits"))
    (place.path / "go").touch()
    assert at_work.wait(20) == 0
    assert place.deploys() == [KEY, "ORCH-2/1/deploy_init"]


@pytest.mark.proves("R64")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_killed_deployers_command_is_waited_for_and_run_again_only_if_it_may(
    place: Place, idempotent: bool
) -> None:
    """The command outlives its deployer and holds its key's lock, so that no second one runs beside it."""
    place.initiate()
    first = place.deployer(place.config("waits", idempotent=idempotent))
    await until(place.deploys)
    first.kill()
    first.wait()
    second = place.deployer(place.config("waits", idempotent=idempotent))
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    assert place.deploys() == [KEY]
    (place.path / "go").touch()
    assert second.wait(20) == 0
    result = place.result(KEY)
    assert result and result.ok is idempotent
    assert place.deploys() == ([KEY, KEY] if idempotent else [KEY])
    assert Ledger(place.folder).entry(KEY).finished


async def test_a_finished_command_whose_result_was_lost_is_not_run_again(place: Place) -> None:
    place.initiate()
    Ledger(place.folder).started(KEY, TARGET)
    Ledger(place.folder).finished(KEY, TARGET, ok=False, code=3, tail="said so")
    place.deployer(place.config()).wait(20)
    assert place.result(KEY) == Result(KEY, JOURNAL, TARGET, False, 3, "said so")
    assert place.deploys() == []


async def test_a_torn_line_does_not_swallow_the_next_one(place: Place) -> None:
    ledger = Ledger(place.folder)
    ledger.started(KEY, TARGET)
    with (place.folder / "ledger.jsonl").open("ab") as file:
        file.write(b'{"event": "finished", "key": "ORCH-1/1/de')
    assert ledger.entry(KEY).started and not ledger.entry(KEY).finished
    ledger.finished(KEY, TARGET, ok=True, code=0, tail="")
    assert ledger.entry(KEY).finished


@pytest.mark.proves("R62", "R65")
async def test_a_failed_deploy_reports_its_tail_and_frees_the_way(place: Place) -> None:
    call = place.call()
    reply = await place.step("fails").apply(call)
    assert reply.outcome is Outcome.UNKNOWN and ("result", "failed") in reply.seen
    verdict = await place.verified().probe(call)
    assert verdict.fact is Fact.CONFLICT and "image missing" in str(dict(verdict.seen)["tail"])
    await place.step().apply(place.call("ORCH-2", NEWER))
    assert (await place.verified().probe(place.call("ORCH-2", NEWER))).fact is Fact.OURS


@pytest.mark.proves("E9", "R62")
async def test_a_deploy_command_that_hangs_is_killed_by_its_budget(place: Place) -> None:
    place.initiate()
    place.deployer(place.config("hangs", command_budget_s=0.7)).wait(20)
    result = place.result(KEY)
    assert result and result.code == -signal.SIGKILL and "killed after" in result.tail


async def test_a_command_that_cannot_be_started_is_a_failed_deploy(place: Place) -> None:
    place.initiate()
    place.deployer(place.config(command=("/nonexistent/deploy",))).wait(20)
    result = place.result(KEY)
    assert result and not result.ok and "not started" in result.tail


@pytest.mark.proves("V10")
async def test_a_service_that_is_not_killed_returns_unknown_at_its_deadline(place: Place) -> None:
    reply = await place.step("waits").apply(place.call(budget_s=2))
    assert reply.outcome is Outcome.UNKNOWN and "still alive" in str(dict(reply.seen)["reason"])
    (place.path / "go").touch()
    await until(lambda: place.result(KEY))


@pytest.mark.proves("V2", "V3")
@pytest.mark.parametrize("content", [b"", b"{", b"null", b"{}", b"\xff", b"[" * 70_000])
async def test_a_torn_or_empty_marker_is_unknown_and_is_never_deployed(place: Place, content: bytes) -> None:
    markers.initiated_path(place.folder, KEY).write_bytes(content)
    assert (await place.step().probe(place.call())).fact is Fact.UNKNOWN
    assert place.deployer(place.config()).wait(20) == 0
    assert place.deploys() == []


@pytest.mark.proves("V2", "R100")
async def test_a_forged_marker_is_not_believed(place: Place, tmp_path: Path) -> None:
    good = place.initiate("ORCH-9")
    path = markers.initiated_path(place.folder, KEY)
    told = json.loads(markers.initiated_path(place.folder, good.key).read_text())
    markers.initiated_path(place.folder, good.key).unlink()
    forgeries = [
        told,  # another key's content under our name
        told | {"key": KEY, "main_sha": "--upload-pack=x"},
        told | {"key": KEY, "epoch": "3"},
        told | {"key": KEY, "epoch": True},
        told | {"key": KEY, "surprise": 1},
    ]
    for forged in forgeries:
        path.write_text(json.dumps(forged))
        assert (await place.step().probe(place.call())).fact is Fact.UNKNOWN
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(json.dumps(told | {"key": KEY}))
    path.symlink_to(elsewhere)
    assert (await place.step().probe(place.call())).fact is Fact.UNKNOWN
    assert place.deployer(place.config()).wait(20) == 0
    assert place.deploys() == []


@pytest.mark.proves("V8")
@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        (("journal", "k" * 32), Fact.OTHERS),
        (("epoch", 4), Fact.CONFLICT),
        (("main_sha", NEWER), Fact.CONFLICT),
        (("epoch", 2), Fact.OURS),
    ],
)
async def test_whose_marker_it_is_is_read_from_the_marker(
    place: Place, changed: tuple[str, object], fact: Fact
) -> None:
    place.initiate("ORCH-1", 1, **dict([changed]))
    assert (await place.step().probe(place.call())).fact is fact


@pytest.mark.proves("V2")
async def test_the_silence_of_a_folder_that_is_not_ours_proves_nothing(place: Place, tmp_path: Path) -> None:
    """A volume that is not mounted leaves an empty folder, or none."""
    for name in ("gone", "empty"):
        config = place.config(folder=tmp_path / name)
        step = SelfDeploy(config, RealClock(), place.running, is_ancestor)
        assert (await step.probe(place.call())).fact is Fact.UNKNOWN
        assert (await step.apply(place.call())).outcome is Outcome.REJECTED
        (tmp_path / "empty").mkdir(exist_ok=True)
        markers.prepare_folder(tmp_path / "empty")
        with pytest.raises(UnreadableError):
            markers.read_result(tmp_path / name, KEY)


@pytest.mark.proves("S8")
async def test_no_marker_is_ever_replaced_and_none_is_left_half_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.initiate()
    with pytest.raises(FileExistsError):
        place.initiate(main_sha=NEWER)
    assert markers.read_initiated(place.folder, KEY) == first

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    reply = await place.step().apply(place.call("ORCH-2"))
    monkeypatch.undo()
    assert reply.outcome is Outcome.REJECTED
    assert markers.all_initiated(place.folder) == ([first], [])
    assert not list(place.folder.glob(".*"))


@pytest.mark.proves("E6")
async def test_a_link_whose_folder_could_not_be_synced_is_in_doubt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(markers, "_sync_folder", fails)
    assert (await place.step().apply(place.call())).outcome is Outcome.UNKNOWN


@pytest.mark.proves("E6")
async def test_without_a_landed_commit_nothing_is_handed_over(place: Place) -> None:
    call = place.call(outcomes=MappingProxyType({}))
    assert (await place.step().probe(call)).fact is Fact.UNKNOWN
    assert (await place.step().apply(call)).outcome is Outcome.REJECTED
    assert markers.all_initiated(place.folder) == ([], [])


def superseded(finding: Finding) -> bool:
    return finding.fact is Fact.OTHERS and ("superseded", True) in finding.seen


@pytest.mark.proves("FR-4")
async def test_an_older_target_is_superseded_by_what_runs_or_was_handed_over_last(place: Place) -> None:
    """Never by a deploy that failed; and whoever cannot tell says so."""
    (place.path / "version").write_text(NEWER)
    assert superseded(await place.step().probe(place.call()))
    assert superseded(await place.verified().probe(place.call()))
    (place.path / "version").write_text(OLD)
    newer = place.initiate("ORCH-2", main_sha=NEWER)
    assert superseded(await place.step().probe(place.call()))
    result = Result(newer.key, JOURNAL, NEWER, False, 1, "")
    markers.write(markers.result_path(place.folder, newer.key), result)
    assert (await place.step().probe(place.call())).fact is Fact.ABSENT
    (place.path / "version").write_text("9" * 40)
    assert (await place.step().probe(place.call())).fact is Fact.UNKNOWN


@pytest.mark.proves("R63", "R67", "FR-4")
async def test_done_needs_the_running_version_and_nothing_less(place: Place) -> None:
    place.initiate()
    markers.write(markers.result_path(place.folder, KEY), Result(KEY, JOURNAL, TARGET, True, 0, ""))
    assert (await place.verified().probe(place.call())).fact is Fact.ABSENT
    (place.path / "version").unlink()
    assert (await place.verified().probe(place.call())).fact is Fact.UNKNOWN
    (place.path / "version").write_text("latest")
    assert (await place.verified().probe(place.call())).fact is Fact.UNKNOWN


@pytest.mark.proves("R62")
async def test_the_running_target_counts_although_the_command_failed(place: Place) -> None:
    markers.write(markers.result_path(place.folder, KEY), Result(KEY, JOURNAL, TARGET, False, 1, "unhealthy"))
    (place.path / "version").write_text(TARGET)
    assert (await place.verified().probe(place.call())).fact is Fact.OURS


def test_what_the_two_steps_are(place: Place) -> None:
    traits = place.step(environment="live").traits
    assert (traits.guard, traits.irreversible, traits.adopts) == (Guard.EXCLUSIVE, True, False)
    assert traits.ends_owner and traits.lane == "deploy:live"
    assert place.verified().traits.guard is Guard.AWAITED and place.verified().traits.adopts


def test_the_deployer_is_light() -> None:
    """It starts while the service is being stopped: no validation library, no event loop."""
    heavy = "[name for name in ('pydantic', 'asyncio') if name in sys.modules]"
    code = f"import sys; from integrations.deploy import deployer; print({heavy})"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert said.stdout.strip() == b"[]"


async def test_processes_that_make_the_folder_at_once_agree_on_one(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "deploys"
    await asyncio.gather(*(asyncio.to_thread(markers.prepare_folder, folder) for _ in range(8)))
    assert [path.name for path in folder.parent.iterdir()] == ["deploys"]
    assert markers.all_initiated(folder) == ([], [])
