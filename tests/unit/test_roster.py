"""What may be concluded from another process's silence, and what an own lease says: pure, with clocks passed in."""

from __future__ import annotations

import pytest

from journal.hosts.lease import Lease
from journal.hosts.roster import Member, Periods, standing
from journal.words import Standing

PERIODS = Periods(beat_s=1, stops_s=6, suspect_s=10, vanished_s=3)


def judged(
    silent_s: float, *, session: bool = True, ended: str = "", ground: str = "other", settled: bool = True
) -> str:
    member = Member("i" * 32, "host", ground, silent_s, session, ended)
    return standing(member, "mine", PERIODS, settled=settled)


@pytest.mark.proves("M2")
@pytest.mark.parametrize(
    ("silent_s", "session", "said"),
    [(0, True, "alive"), (9, True, "alive"), (11, True, "suspect"), (2, False, "alive"), (4, False, "suspect")],
)
def test_silence_makes_a_suspect_and_sooner_once_its_session_is_gone(silent_s: float, session: bool, said: str) -> None:
    assert judged(silent_s, session=session) == said


@pytest.mark.proves("M1", "M3")
def test_no_silence_however_long_proves_death() -> None:
    """After a million seconds and without a session it is a suspect still: a process may be stopped for that long."""
    assert judged(1e6, session=False) == Standing.SUSPECT
    assert standing(None, "mine", PERIODS, settled=True) is Standing.SUSPECT


@pytest.mark.proves("M1")
def test_death_is_proven_by_its_own_word_and_by_the_kernel_that_we_share() -> None:
    assert judged(0, ended="every run was seen to end") == Standing.GONE
    assert judged(0, ground="mine") == Standing.GONE
    member = Member("i" * 32, "host", "", 0, session=True, ended="")
    assert standing(member, "", PERIODS, settled=True) is Standing.ALIVE, "two unknown grounds are not one"


@pytest.mark.proves("M2")
def test_a_beat_from_the_future_is_no_sign_of_life() -> None:
    """A standby with a clock hours behind was promoted: the dead of its past must not look alive for those hours."""
    assert judged(-7200) == Standing.SUSPECT
    assert judged(-1) == Standing.ALIVE


@pytest.mark.proves("M2")
def test_after_an_outage_of_the_database_nobody_is_suspected_before_all_had_time_to_come_back() -> None:
    assert judged(1e6, session=False, settled=False) == Standing.ALIVE


@pytest.mark.proves("M2")
def test_a_lease_counts_from_before_the_beat_was_sent_and_an_owner_stops_before_others_may_suspect_it() -> None:
    now = [100.0]
    lease = Lease(PERIODS.stops_s, lambda: now[0])
    assert lease.refusal()
    sent = now[0]
    now[0] += 5  # the answer took that long
    lease.renew(sent)
    assert not lease.refusal()
    now[0] = sent + PERIODS.stops_s
    assert lease.refusal()
    assert PERIODS.stops_s < PERIODS.suspect_s
    lease.renew(sent - 50)  # an old answer extends nothing
    assert lease.refusal()
    assert "for 6 s" in lease.refusal()
