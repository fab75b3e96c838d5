"""
The invariants that the journal alone can show (PROTOCOL 10, those marked J), checked over any sequence of events.

An oracle of its own: it keeps its own books (`recovery.ledger`) and shares neither `admit` nor the fold with the
engine, so that a mistake there is seen here. It streams: what is held is one small ledger per open task and a tenth of
one per task that ended. I1, I3 and I24 need the stored rows and stand in `recovery.verify`; I22, I23 and I25 need
facts or a clock and belong to the explorer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from journal.doubt import Row, Verdict
from journal.events import (
    Acquired,
    Applied,
    Canceled,
    Draft,
    Event,
    IncarnationStarted,
    Intended,
    JournalCreated,
    Observed,
    Parked,
    Rejected,
    Released,
    Reopened,
    Resumed,
    Settled,
    StageMoved,
)
from journal.words import LOG_KINDS, OWNED_KINDS, Ending, Fact, Guard, Hold, Kind
from recovery.ledger import ENDED, Ledger, Rest

_CONSEQUENCE: dict[str, frozenset[Kind]] = {
    Verdict.DRIVE: frozenset({Kind.INTENDED}),
    Verdict.CONVERGE: frozenset({Kind.APPLIED}),
    Verdict.WAIT: frozenset({Kind.RELEASED}),
    Verdict.PARK: frozenset({Kind.PARKED, Kind.STAGE_MOVED}),
    Verdict.HALT: frozenset({Kind.PARKED}),
}
"""What must follow a decision at once, in the same unit (DESIGN 4, `observed`)."""

MAX_FRUITLESS = 3
"""Terms in a row without a closed step (O2); on purpose not taken from the engine, whose bound this checks."""

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_CREATED, _OPENED, _ACQUIRED, _REOPENED = Kind.JOURNAL_CREATED, Kind.OPENED, Kind.ACQUIRED, Kind.REOPENED
_RAISING = frozenset({Kind.OPENED, Kind.HEAD_CHANGED, Kind.REOPENED})
_NOTES = frozenset({Kind.OBSERVED, Kind.HAZARD_FOUND})
_FREE, _AWAITED = Hold.NONE, Guard.AWAITED

_WANTED = {"probe": {Fact.OURS}, "other": {Fact.OTHERS}, "awaited": {Fact.OURS, Fact.OTHERS}}
_ROWS = frozenset(row.value for row in Row)
_AFTER_END = frozenset({Kind.OBSERVED, Kind.HAZARD_FOUND, Kind.REOPENED, Kind.RELEASED})


@dataclass(frozen=True, slots=True)
class Violation:
    """One invariant that one event breaks."""

    position: int
    invariant: str  # I1..I26
    detail: str
    task: str = ""


class Checker:
    """Takes events in order and answers what is wrong with each."""

    def __init__(self, *, part: bool = False) -> None:
        """
        Begin.

        Args:
            part: One task's events only: places in the log are not expected to be dense, lanes are not known.
        """
        self._part = part
        self._position = 0
        self._log_version = 0
        self._floor = 0
        self._greatest = 0
        self._ledgers: dict[str, Ledger | Rest] = {}
        self._lanes: dict[str, str] = {}
        self._found: list[Violation] = []
        self._event: Event | None = None

    def take(self, event: Event) -> list[Violation]:
        """Check one event against everything before it, then take it in."""
        self._found, self._event = [], event
        if not self._part:
            self._require(event.position == self._position + 1, "I1", f"position {self._position + 1} is missing")
            first = event.kind is _CREATED
            self._require(first == (event.position == 1), "I26", f"{event.kind} at position {event.position}")
        self._position = event.position
        if event.task:
            self._of_task(event)
        else:
            self._of_log(event)
        return self._found

    def owed(self) -> Iterator[Violation]:
        """At the end of the log: decisions whose consequence is not there, though both are one unit."""
        for task, ledger in self._ledgers.items():
            if isinstance(ledger, Ledger) and ledger.owed:
                detail = f"the decision is not followed by {_either(ledger.owed)}"
                yield Violation(ledger.position, "I18", detail, task)

    def _require(self, holds: bool, invariant: str, detail: str) -> None:
        if not holds and self._event is not None:
            self._found.append(Violation(self._event.position, invariant, detail, self._event.task))

    def _of_log(self, event: Event) -> None:
        self._require(event.kind in LOG_KINDS, "I3", f"{event.kind} without a task")
        self._require(event.version == self._log_version + 1, "I2", f"version {event.version} of the log's own stream")
        self._log_version = event.version
        match event.draft.body:
            case IncarnationStarted(floor=floor):
                self._require(floor >= self._greatest, "I26", f"floor {floor} lies below epoch {self._greatest}")
                self._floor = max(self._floor, floor)
            case JournalCreated(journal=journal):
                self._require(bool(journal), "I26", "the journal has no id")
            case _:
                pass

    def _of_task(self, event: Event) -> None:
        kept = self._ledgers.get(event.task)
        ledger = Ledger() if kept is None else Ledger.of(kept) if isinstance(kept, Rest) else kept
        self._require(event.kind not in LOG_KINDS, "I3", f"{event.kind} belongs to the log's own stream")
        self._require(event.version == ledger.version + 1, "I2", f"version {event.version} after {ledger.version}")
        adjacent = event.position == ledger.position + 1
        if ledger.owed and not (adjacent and event.kind in ledger.owed):
            self._require(False, "I18", f"{event.kind} where {_either(ledger.owed)} must follow the decision")
        ledger.owed = frozenset()
        self._check(ledger, event, ledger.before if adjacent else None)
        lane = ledger.lane
        ledger.take(event)
        self._greatest = max(self._greatest, ledger.epoch)
        self._move_lane(event.task, lane, ledger.lane)
        self._ledgers[event.task] = ledger.rest() if ledger.over else ledger

    def _move_lane(self, task: str, before: str, after: str) -> None:
        if before != after and self._lanes.get(before) == task:
            del self._lanes[before]
        if after:
            holder = self._lanes.setdefault(after, task)
            self._require(holder == task, "I8", f"lane {after} is held by {holder}")

    # -- one event against its task's ledger --------------------------------------------------------------------------

    def _check(self, k: Ledger, event: Event, before: Draft | None) -> None:
        d = event.draft
        self._check_place(k, d)
        match d.body:
            case Acquired():
                self._check_acquired(k, d, d.body)
            case Intended():
                self._check_intended(k, d, d.body, before)
            case Applied():
                self._check_applied(k, d, d.body, before)
            case Rejected():
                self._require(k.is_open(d), "I9", f"rejected {d.step}#{d.attempt}, which is not the open intent")
            case Observed():
                self._check_observed(k, d, d.body)
            case StageMoved():
                self._check_moved(k, d, d.body)
            case Parked(alert=alert):
                self._require(bool(alert), "I17", "parked without an alert id")
                self._require(k.hold is Hold.NONE, "I7", f"parked while {k.hold}")
            case Released():
                self._check_released(k, d.body)
            case Settled():
                self._require(k.hold is Hold.PARKED, "I9", "settled a task that is not parked")
                self._require(
                    bool(d.step) and d.step == k.cursor_name,
                    "I9",
                    f"settled {d.step}, the cursor is at {k.cursor_name}",
                )
            case Resumed():
                self._require(k.hold in (Hold.PARKED, Hold.PAUSED), "I7", "resumed while neither parked nor paused")
            case Reopened():
                self._require(not k.owner, "I16", "reopened while a run owns the task")
            case Canceled():
                self._require(k.open is None and not k.loose, "I15", "canceled while an attempt may still land")
            case _:
                pass

    def _check_place(self, k: Ledger, d: Draft) -> None:
        kind = d.kind
        self._require((kind is _OPENED) != bool(k.stage), "I2", f"{kind} where the task is {k.stage or 'not open'}")
        if kind is _ACQUIRED:
            due = max(k.epoch, self._floor) + 1
            self._require(d.epoch == due, "I4", f"acquired epoch {d.epoch}, the next one is {due}")
        elif d.epoch < k.epoch and kind in OWNED_KINDS:
            self._require(False, "I6", f"{kind} of epoch {d.epoch} after epoch {k.epoch} was acquired")
        else:
            self._require(d.epoch == k.epoch, "I5", f"{kind} carries epoch {d.epoch}, the current one is {k.epoch}")
        if kind in OWNED_KINDS:
            self._require(bool(k.owner), "I21", f"{kind} while nobody owns the task")
        raises = kind in _RAISING
        generation = k.generation + raises
        noted = kind in _NOTES and 0 < d.generation < generation
        self._require(
            d.generation == generation or noted, "I16", f"{kind} of generation {d.generation}, not {generation}"
        )
        if raises and kind is not _OPENED:
            self._require(k.open is None, "I16", f"{kind} with an attempt in doubt")
            self._require(kind is _REOPENED or not k.landed, "I16", f"{kind} after something irreversible landed")
        if k.hold in ENDED:
            self._require(kind in _AFTER_END, "I15", f"{kind} after the task was {k.hold}")

    def _check_acquired(self, k: Ledger, d: Draft, body: Acquired) -> None:
        self._require(k.hold is Hold.NONE, "I7", f"acquired while {k.hold}")
        self._require(bool(body.owner.run), "I7", "acquired by nobody")
        self._require(
            body.before == k.owner, "I7", f"acquired over '{body.before}', the term without end is '{k.owner}'"
        )
        self._require(bool(body.cause) == bool(k.owner), "I7", "the reason why the term before is over is wrong")

    def _check_intended(self, k: Ledger, d: Draft, body: Intended, before: Draft | None) -> None:
        step = k.cursor
        if step is None or step.name != d.step:
            self._require(False, "I8", f"intended {d.step}, the next step is {k.cursor_name or 'none'}")
            return
        self._require(step.guard is not _AWAITED, "I8", f"{d.step} is only awaited and has no intent")
        same = (body.guard, body.irreversible) == (step.guard, step.irreversible)
        self._require(same, "I8", f"the intent of {d.step} says otherwise than the plan that was acquired")
        self._require(k.hold is _FREE, "I17", f"intended while {k.hold}")
        self._require(not k.cancel, "I15", "intended after the end was requested")
        self._require(d.attempt == k.attempts + 1, "I11", f"attempt {d.attempt} of {d.step} after {k.attempts}")
        if k.open is not None:
            seen = (
                before is not None
                and isinstance(before.body, Observed)
                and (before.body.fact, before.step, before.epoch) == (Fact.ABSENT, d.step, d.epoch)
                and step.guard is not Guard.BLIND
            )
            self._require(seen, "I11", f"attempt {d.attempt} of {d.step} while {k.open.attempt} is in doubt")
        fence = k.fences.get(d.step, (0, 0))
        self._require((d.epoch, d.attempt) > fence, "I19", f"fence {(d.epoch, d.attempt)} of {d.step} after {fence}")
        tries = k.tries.get(d.step, 0) + 1
        self._require(tries <= step.attempts, "I20", f"try {tries} of {d.step}, its bound is {step.attempts}")
        self._require(
            k.fruitless <= MAX_FRUITLESS, "I20", f"term {k.fruitless} in a row without a closed step drives on"
        )

    def _check_applied(self, k: Ledger, d: Draft, body: Applied, before: Draft | None) -> None:
        self._require(d.step not in k.closed, "I10", f"{d.step} was applied before in this generation")
        self._require(d.step == k.cursor_name, "I8", f"applied {d.step}, the next step is {k.cursor_name or 'none'}")
        if body.via == "apply":
            own = k.open is not None and (k.open.step, k.open.attempt) == (d.step, d.attempt)
            self._require(own, "I9", f"applied {d.step}#{d.attempt} without that open intent")
            mine = k.open is None or k.open.epoch == d.epoch
            self._require(mine, "I18", f"{d.step} was begun in another epoch, and no observation settled it")
            return
        if body.via == "probe":
            self._require(0 < d.attempt == k.attempts, "I9", f"applied {d.step}#{d.attempt} without that intent")
        wanted = _WANTED[body.via]
        seen = (
            before is not None
            and isinstance(before.body, Observed)
            and (before.step, before.epoch) == (d.step, d.epoch)
            and before.body.fact in wanted
        )
        self._require(seen, "I18", f"applied {d.step} via {body.via} without the observation it rests on")

    def _check_observed(self, k: Ledger, d: Draft, body: Observed) -> None:
        """Only an owner's decision has a consequence; an auditor's observation stands for itself."""
        if not k.owner or body.row not in _ROWS:
            return
        self._require(d.step == k.cursor_name, "I18", f"decided about {d.step}, the cursor is at {k.cursor_name}")
        row = Row.OPEN if k.open else Row.RETRY if k.attempts else Row.FRESH
        self._require(body.row == row, "I18", f"decided from row {body.row} while the journal says {row}")
        k.owed = _CONSEQUENCE.get(body.verdict, frozenset())

    def _check_moved(self, k: Ledger, d: Draft, body: StageMoved) -> None:
        self._require(body.from_stage == k.stage, "I12", f"moved from {body.from_stage} while in {k.stage}")
        self._require(k.moved_in != d.epoch, "I12", f"a second move in epoch {d.epoch}")
        self._require(k.open is None, "I13", "moved with an attempt in doubt")
        self._require(body.because == k.basis, "I13", f"moved because of {body.because}, the last outcome is {k.basis}")
        if k.plan is None or k.plan.source != k.stage:
            self._require(False, "I12", "moved along no acquired edge")
        elif body.to_stage == k.plan.target:
            self._require(k.cursor is None, "I13", f"moved over an edge whose step {k.cursor_name} is not closed")
            self._require(body.final == k.plan.final, "I15", "says otherwise than the plan about the pipeline's end")
        else:
            back = bool(k.plan.on_failure) and body.to_stage == k.plan.on_failure
            self._require(back, "I12", f"moved to {body.to_stage}, where no edge leads")
            self._require(not k.landed, "I12", "moved back after something irreversible landed")
            self._require(not k.loose, "I12", "moved back while an attempt may still land")

    def _check_released(self, k: Ledger, body: Released) -> None:
        allowed = k.open is None or body.ending in (Ending.PARKED, Ending.WAITING, Ending.LOST)
        self._require(allowed, "I14", f"released({body.ending}) with an attempt in doubt")
        parked = body.ending is not Ending.PARKED or k.hold is Hold.PARKED
        self._require(parked, "I17", "released(parked) without parked")
        moved = body.ending not in (Ending.ADVANCED, Ending.ROLLED_BACK) or k.moved_in == k.epoch
        self._require(moved, "I12", f"released({body.ending}) and the stage did not move")


def check(events: Iterable[Event], *, part: bool = False) -> Iterator[Violation]:
    """Every violation, in order of position."""
    checker = Checker(part=part)
    for event in events:
        yield from checker.take(event)
    yield from checker.owed()


def _either(kinds: frozenset[Kind]) -> str:
    return " or ".join(sorted(kinds))
