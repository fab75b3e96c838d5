"""A deploy handed over to a unit of the host, on a stand-in for systemd: none can be booted where tests run."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from integrations.deploy.handover import HandOver, HandOverVerified, helper_name
from integrations.deploy.unit import UnitDeployConfig, UnitHost, UnitRecords, UnitVerifiedConfig
from journal.ports import Anchor, Call, Subject
from journal.words import Fact, Guard, Outcome, evidence
from tests.doubles import systemd
from tests.widgets import FreeTerm

OLD, TARGET, JOURNAL = "1" * 40, "2" * 40, "0" * 31 + "1"


class RealClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.05))


async def is_ancestor(old: str, new: str) -> bool | None:
    return old <= new


@dataclass
class Machine:
    """A host whose units are a folder's children."""

    folder: Path
    runs: str = OLD

    def config(self, script: str) -> UnitDeployConfig:
        base = (sys.executable, systemd.__file__, str(self.folder))
        return UnitDeployConfig(command=("/bin/sh", "-c", script), systemd_run=(*base, "run"), systemctl=(*base, "ctl"))

    def step(self, script: str = "exit 0") -> HandOver:
        config = self.config(script)
        return HandOver(config, UnitHost(config), RealClock(), self.running, is_ancestor)

    def verified(self) -> HandOverVerified:
        config = UnitVerifiedConfig(systemctl=self.config("").systemctl)
        return HandOverVerified(config, UnitRecords(config), self.running, is_ancestor)

    async def running(self) -> str | None:
        return self.runs or None

    def units(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if p.is_dir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def call() -> Call:
    return Call(
        journal_id=JOURNAL,
        subject=Subject("UNIT-1", "acme/widgets", "feature/x"),
        generation=1,
        step="deploy_init",
        epoch=3,
        attempt=1,
        budget_s=20.0,
        term=FreeTerm(),
        anchor=Anchor(9, "c" * 64),
        outcomes=MappingProxyType({"merge_pr": evidence(landed=TARGET)}),
    )


@pytest.mark.proves("R59", "V10")
async def test_a_unit_carries_the_mark_and_stays_to_be_read_after_it_ended(machine: Machine, call: Call) -> None:
    step = machine.step(f"echo $TRANSITION_KEY $TRANSITION_TARGET > {machine.folder}/said")
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert (await step.apply(call)).outcome is Outcome.UNKNOWN
    assert (machine.folder / "said").read_text().split() == [call.key, TARGET]
    found = await step.probe(call)
    assert found.fact is Fact.OURS and {("state", "ended"), ("fence", "3.1"), ("code", 0)} <= set(found.seen)


@pytest.mark.proves("R59", "E3")
async def test_a_second_unit_of_a_key_is_refused_and_the_command_runs_once(machine: Machine, call: Call) -> None:
    step = machine.step(f"echo once >> {machine.folder}/said")
    await asyncio.gather(step.apply(call), step.apply(replace(call, epoch=4, attempt=2)))
    assert machine.units() == [f"{helper_name(call.key)}.service"]
    assert (machine.folder / "said").read_text() == "once\n"


@pytest.mark.proves("R62")
async def test_a_failed_unit_parks_with_its_last_words(machine: Machine, call: Call) -> None:
    await machine.step("echo the disk is full; exit 3").apply(call)
    finding = await machine.verified().probe(replace(call, step="deploy_verified"))
    assert finding.fact is Fact.CONFLICT and "disk is full" in str(dict(finding.seen)["tail"])


@pytest.mark.proves("V3")
async def test_a_host_without_systemd_is_unknown(machine: Machine, call: Call) -> None:
    (machine.folder / "down").touch()
    assert (await machine.step().probe(call)).fact is Fact.UNKNOWN
    assert (await machine.step().apply(call)).outcome is Outcome.UNKNOWN
    (machine.folder / "down").unlink()
    assert (await machine.step().probe(call)).fact is Fact.ABSENT


@pytest.mark.proves("E6")
async def test_a_starter_that_cannot_be_started_has_provably_done_nothing(machine: Machine, call: Call) -> None:
    config = machine.config("exit 0").model_copy(update={"systemd_run": ("/nonexistent/systemd-run",)})
    step = HandOver(config, UnitHost(config), RealClock(), machine.running, is_ancestor)
    assert (await step.apply(call)).outcome is Outcome.REJECTED


@pytest.mark.proves("V10")
async def test_handing_over_is_declared_exclusive_irreversible_and_the_end_of_its_owner(machine: Machine) -> None:
    traits = machine.step().traits
    assert (traits.guard, traits.irreversible, traits.adopts, traits.ends_owner) == (Guard.EXCLUSIVE, True, False, True)
    assert traits.lane == "deploy:production"
