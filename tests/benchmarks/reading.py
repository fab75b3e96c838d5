"""P10, P11: fold every view anew, verify the chain, audit one task, look back; in a short log and in long ones."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from integrations.cli.reading import audit
from journal.chain import hash_body, header, link
from journal.log.connection import open_reader, open_writer
from journal.log.offline import open_evidence
from journal.log.schema import COLUMNS
from journal.projection import catch_up
from projections import all_views
from projections.as_of import queue_at_offline
from recovery.chain import verify_chain
from tests.benchmarks.logs import EVENTS_A_TASK, OPEN, Logs, name_of
from tests.benchmarks.measuring import Row, Side, Timed, compared, grown, in_turn, timed
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.starting import ROOT
from tests.benchmarks.targets import TARGETS

_ALL = f"SELECT {COLUMNS} FROM journal_events ORDER BY position"  # noqa: S608
NEWEST = 2**63 - 1
_AUDITS = 50
_PAGES, _A_PAGE = 60, 50


async def measure(logs: Logs, sizes: Sizes) -> list[Row]:
    """Every figure at every size of log."""
    rows: list[Row] = []
    for events in (sizes.short_log, *sizes.long_logs):
        path, rounds = logs.of(events), sizes.rounds if events <= 100_000 else 1
        rows += [await _rebuild(path, rounds, events), await _chain(path, rounds, events)]
    for events in sizes.long_logs:
        rows += [await _audit(logs, sizes, events), await _as_of(logs, sizes, events)]
    rows.append(_peak(logs, sizes, "P15v", "verify"))
    rows.append(_peak(logs, sizes, "P15r", "projections", "rebuild"))
    return rows


def _size(events: int) -> str:
    return f"{events / 1e6:g} million events" if events >= 1_000_000 else f"{events // 1000} thousand events"


async def _rebuild(path: Path, rounds: int, events: int) -> Row:
    ours, base = Side("rebuild"), Side("reading the rows")

    async def rebuild() -> Timed:
        with closing(open_writer(path)) as db, timed(_count(db)) as round_:
            catch_up(db, all_views(), rebuild=True)
        return round_

    await in_turn(rounds, (ours, rebuild), (base, lambda: _read(path)))
    return compared("P10", ours, base, unit="events", note=_size(events), size=events)


async def _read(path: Path) -> Timed:
    with closing(open_reader(path)) as db, timed(_count(db)) as round_:
        for _ in db.execute(_ALL):
            pass
    return round_


async def _chain(path: Path, rounds: int, events: int) -> Row:
    ours, base = Side("verify_chain"), Side("a loop")

    async def product() -> Timed:
        with closing(open_reader(path)) as db, timed(_count(db)) as round_:
            assert verify_chain(db).intact
        return round_

    async def plain() -> Timed:
        with closing(open_reader(path)) as db, timed(_count(db)) as round_:
            _plain_loop(db)
        return round_

    await in_turn(rounds, (ours, product), (base, plain))
    return compared("P10v", ours, base, unit="events", note=_size(events), size=events)


def _plain_loop(db: sqlite3.Connection) -> None:
    """The least that a program in Python can do to see that no hash is wrong."""
    before = bytes(32)
    for (
        position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, text, body, at, prev, own,
    ) in db.execute(_ALL):  # fmt: skip
        head = header(position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, at)
        assert hash_body(text) == body and prev == before and link(prev, body, head) == own
        before = own


async def _audit(logs: Logs, sizes: Sizes, events: int) -> Row:
    short, long = Side(_size(sizes.short_log)), Side(_size(events))

    async def audits(path: Path, tasks: int) -> Timed:
        with timed(_AUDITS) as round_:
            for n in range(_AUDITS):
                with open_evidence(path) as db:
                    assert audit(db, name_of(n * (tasks // _AUDITS)), NEWEST).findings.intact
        return round_

    await in_turn(
        max(3, sizes.rounds),
        (short, lambda: audits(logs.of(sizes.short_log), sizes.short_log // 20)),
        (long, lambda: audits(logs.of(events), events // 20)),
    )
    return grown("P11", short, long, unit="audits", note=_size(events), sizes=(sizes.short_log, events))


async def _as_of(logs: Logs, sizes: Sizes, events: int) -> Row:
    """The first page of the queue as of points spread over the history, each with many tasks open."""
    short, long = Side(_size(sizes.short_log)), Side(_size(events))

    async def pages(path: Path) -> Timed:
        with closing(open_reader(path)) as db:
            # In the middle of a life of `OPEN` tasks, so that as many are open at every point in every file.
            lives = range(1 + OPEN * EVENTS_A_TASK // 2, _count(db) - OPEN * EVENTS_A_TASK, OPEN * EVENTS_A_TASK)
            points = [lives[0], lives[len(lives) // 2], lives[-1]] * (_PAGES // 3)
            with timed(len(points)) as round_:
                for point in points:
                    assert len(queue_at_offline(db, point, limit=_A_PAGE).tasks) == _A_PAGE
        return round_

    await in_turn(
        max(3, sizes.rounds),
        (short, lambda: pages(logs.of(sizes.short_log))),
        (long, lambda: pages(logs.of(events))),
    )
    return grown("P11t", short, long, unit="pages", note=_size(events), sizes=(sizes.short_log, events))


_SCRIPT = """
import contextlib, io, sys
from pathlib import Path
from integrations.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(sys.argv[1:])
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""
"""The resource usage of a child would begin with what its parent had in memory; the kernel's mark begins with exec."""


def _peak(logs: Logs, sizes: Sizes, name: str, *command: str) -> Row:
    """Peak memory of a command over the longest log against the short one; hardly differs from round to round."""
    events = sizes.long_logs[-1]
    short, long = (_peak_of("--db", str(logs.of(size)), *command) for size in (sizes.short_log, events))
    ratio = long / short
    return Row(
        TARGETS[name],
        ratio,
        (ratio, ratio),
        f"{_size(events)}: {long / 2**20:.0f} MiB",
        f"{_size(sizes.short_log)}: {short / 2**20:.0f} MiB",
    )


def _peak_of(*arguments: str) -> int:
    """Bytes that a command had in memory at most, libraries and mapped pages of the file included."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout.split()[-1]) * 1024


def _count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT max(position) FROM journal_events").fetchone()[0])
