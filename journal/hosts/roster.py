"""
What the rows of the other processes say about them: pure (M2, M3).

Silence is measured by the database's clock alone, so the clocks of hosts may differ by hours. Nothing here proves
death but two sentences: it said itself that it ended with nothing left, and it shared our kernel's locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from journal.words import Standing


@dataclass(frozen=True, slots=True)
class Periods:
    """
    How long is how long, in seconds.

    A living process stops itself well before others may suspect it; both clocks would have to run apart by a third for
    the order to turn, and even then only the guards of `journal.doubt` are leaned on.
    """

    beat_s: float = 1.0
    stops_s: float = 6.0  # without a renewal, by our own clock: no effect begins any more
    suspect_s: float = 10.0  # of silence, by the database's clock
    vanished_s: float = 3.0  # the same, when the session's lock is free too: the quick sign
    hung_s: float = 30.0  # an event loop that answered nothing for so long: we are silent, and others take over


PERIODS = Periods()


@dataclass(frozen=True, slots=True)
class Member:
    """One process as the database knows it."""

    instance: str
    host: str
    ground: str  # which locks of which kernel it holds; see `journal.hosts.ground`
    silent_s: float  # since its last beat; below 0 if the database's clock was set back, or is another's by now
    session: bool  # its session lock is held
    ended: str  # what it said when it ended with nothing left, or what a person said; "" = nothing
    address: str = ""  # where it serves; "" = a command line, which looks after nothing by itself
    pid: int = 0  # for people


def standing(member: Member | None, ground: str, periods: Periods, *, settled: bool) -> Standing:
    """
    How sure it is that nothing of a process is left.

    Args:
        member: Its row; None if there is none, as for journals that came from elsewhere.
        ground: Ours. Who asks holds the task's file lock on it.
        periods: The limits.
        settled: We have been connected for longer than the limit; before that, silence may be the server's, not its.
    """
    if member is None:
        return Standing.SUSPECT
    if member.ended or (ground and member.ground == ground):
        return Standing.GONE
    limit_s = periods.suspect_s if member.session else periods.vanished_s
    heard = -limit_s < member.silent_s < limit_s
    return Standing.ALIVE if heard or not settled else Standing.SUSPECT


def minder(task: str, members: Iterable[Member], me: str, periods: Periods) -> str:
    """
    The instance that looks after a task: the highest hash among the services that live, so most stay when one goes.

    Args:
        task: Its id.
        members: All that were heard of.
        me: Our instance; we live, whatever the last answer of the database said.
        periods: The limits.
    """
    living = {me} | {
        m.instance for m in members if m.address and standing(m, "", periods, settled=True) is Standing.ALIVE
    }
    return max(living, key=lambda instance: blake2b(f"{task}\0{instance}".encode(), digest_size=8).digest())
