"""
The words of the protocol as closed enumerations (DESIGN 3, 6; PROTOCOL 2).

Stored strings never change: they stand in journals that must be readable for ever.
"""

from __future__ import annotations

from enum import StrEnum

Scalar = str | int | bool | None
Evidence = tuple[tuple[str, Scalar], ...]
"""What was seen, as sorted (name, value) pairs: hashable, so that a decision may rest on it. No floats, no secrets."""


def evidence(**seen: Scalar) -> Evidence:
    """Build evidence from keyword arguments, sorted by name."""
    return tuple(sorted(seen.items()))


class Guard(StrEnum):
    """What makes a second run of a step harmless. An undeclared guard is BLIND (E4)."""

    AWAITED = "awaited"  # read-only: no effect, no intent; absent means wait, present means go on
    REPEATABLE = "repeatable"  # content-addressed: running it twice changes nothing
    EXCLUSIVE = "exclusive"  # the far side refuses a second one, by key or by old value
    FENCED = "fenced"  # a fence (epoch, attempt) can be installed at the far side before probing
    PROBED = "probed"  # only a probe; a re-drive needs proof that nothing carries the old attempt
    BLIND = "blind"  # neither: a doubt parks


class Fact(StrEnum):
    """The five answers of a probe (V2). Unknown is never "no", absent is never a guess."""

    OURS = "ours"  # the effect is there and carries our key
    OTHERS = "others"  # the effect is there, somebody else's
    ABSENT = "absent"  # authoritative, fresh, asked after our epoch began
    UNKNOWN = "unknown"
    CONFLICT = "conflict"  # the sources contradict each other


class Outcome(StrEnum):
    """What an apply claims. Only a claim: a success counts when the probe confirms it (E6)."""

    APPLIED = "applied"
    REJECTED = "rejected"  # it provably never left, or an explicit refusal; the probe must still say absent
    UNKNOWN = "unknown"  # exception, timeout, signal, 5xx, still alive after a deploy


class Standing(StrEnum):
    """How sure we are that nothing of an owner is left. Across hosts liveness is a suspicion (PROTOCOL 9)."""

    ALIVE = "alive"  # deferred to
    SUSPECT = "suspect"  # silent; it may wake up, and what it had begun may still land (M1)
    GONE = "gone"  # for certain: its kernel dropped its lock, or it said so itself when it ended


class Opening(StrEnum):
    """The answer of a gate (E12). Unknown is never open."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class Ending(StrEnum):
    """How a term of ownership ends, as stored in `released`; DEFERRED and REFUSED never had a term."""

    ADVANCED = "advanced"
    LOST = "lost"
    PARKED = "parked"
    WAITING = "waiting"
    ROLLED_BACK = "rolled_back"
    DEFERRED = "deferred"
    REFUSED = "refused"


class Hold(StrEnum):
    """Why a task is not driven although nobody owns it."""

    NONE = ""
    PARKED = "parked"
    PAUSED = "paused"
    CANCELED = "canceled"
    DONE = "done"


class Cause(StrEnum):
    """Why the term before an `acquired` is over although it has no end in the journal (FR-6 counts these)."""

    NONE = ""
    GONE = "gone"  # its lock fell free: the process died, the run was cancelled, or a bug ended it
    BUDGET = "budget"  # it was overdue and was ended
    OPERATOR = "operator"


class Kind(StrEnum):
    """The closed set of event kinds, past tense (DESIGN 4)."""

    OPENED = "opened"
    HEAD_CHANGED = "head_changed"
    ACQUIRED = "acquired"
    INTENDED = "intended"
    APPLIED = "applied"
    REJECTED = "rejected"
    OBSERVED = "observed"
    STAGE_MOVED = "stage_moved"
    PARKED = "parked"
    SETTLED = "settled"
    HAZARD_FOUND = "hazard_found"
    RELEASED = "released"
    PAUSED = "paused"
    RESUMED = "resumed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELED = "canceled"
    REOPENED = "reopened"
    JOURNAL_CREATED = "journal_created"
    INCARNATION_STARTED = "incarnation_started"
    SWITCHED = "switched"
    SEALED = "sealed"
    UNREAD = "unread"  # stands for a stored kind or schema that this program does not know (L4); never written


LOG_KINDS = frozenset({Kind.JOURNAL_CREATED, Kind.INCARNATION_STARTED, Kind.SWITCHED, Kind.SEALED})
OPERATOR_KINDS = frozenset(
    {Kind.SETTLED, Kind.PAUSED, Kind.RESUMED, Kind.CANCEL_REQUESTED, Kind.CANCELED, Kind.REOPENED}
)
OWNED_KINDS = frozenset(
    {
        Kind.HEAD_CHANGED,
        Kind.INTENDED,
        Kind.APPLIED,
        Kind.REJECTED,
        Kind.STAGE_MOVED,
        Kind.PARKED,
        Kind.RELEASED,
    }
)
"""Only the owner writes these, under its epoch; `observed` and `hazard_found` also others while nobody owns (I21)."""
