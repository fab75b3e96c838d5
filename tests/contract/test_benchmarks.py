"""What the benchmarks rest on: logs that are real ones, flushes that are counted, verdicts the right way up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from journal.log.offline import open_evidence
from projections import all_views
from recovery.verify import verify
from tests.benchmarks.flushes import counting
from tests.benchmarks.logs import EVENTS_A_TASK, OPEN, make_log
from tests.benchmarks.measuring import Side, Timed, compared, grown
from tests.benchmarks.plot import svg
from tests.benchmarks.targets import TARGETS, Verdict


def test_a_long_log_made_for_the_benchmarks_is_intact_with_all_its_views(tmp_path: Path) -> None:
    make_log(tmp_path / "long.db", OPEN + 50)
    with open_evidence(tmp_path / "long.db") as db:
        found = verify(db, projections=all_views(), deep=True)
        assert found.intact, found.violations
        assert found.events == 1 + OPEN + 50 * EVENTS_A_TASK
        assert db.execute("SELECT count(*) FROM journal_view_tasks WHERE open = 1").fetchone() == (OPEN,)


@pytest.mark.parametrize(("synchronous", "flushes"), [("FULL", 50), ("NORMAL", 0)])
def test_a_flush_is_counted_for_every_commit_that_waits_for_the_disk(
    tmp_path: Path, synchronous: str, flushes: int
) -> None:
    with counting() as counter, closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("CREATE TABLE t (x)")
        before = counter.count
        for _ in range(50):
            db.execute("INSERT INTO t VALUES (1)")
        assert counter.count - before == flushes


def test_a_ratio_is_better_when_it_is_larger_unless_the_target_is_a_ceiling() -> None:
    assert [TARGETS["P1"].verdict(r) for r in (0.6, 0.4, 0.3)] == [Verdict.GOAL, Verdict.FLOOR, Verdict.MISSED]
    assert [TARGETS["P7"].verdict(r) for r in (1.0, 1.3, 1.6)] == [Verdict.GOAL, Verdict.FLOOR, Verdict.MISSED]


def test_rates_are_compared_as_ours_of_theirs_and_times_as_large_of_small() -> None:
    quick, slow = Side("quick", [Timed(100, 1, 1)]), Side("slow", [Timed(100, 4, 2)])
    assert compared("P1", quick, slow, unit="events").ratio == 4
    assert compared("P1", quick, slow, unit="events").cpu_ratio == 2
    assert grown("P7", quick, slow, unit="tasks").ratio == 4


def test_the_plot_is_sound_and_names_every_line() -> None:
    drawn = fromstring(svg("title", {"flat": [(1e4, 50.0), (1e6, 50.0)], "steep": [(1e4, 10.0), (1e6, 1e5)]}))  # noqa: S314
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"flat", "steep", "10k", "1M"} <= set(texts)
