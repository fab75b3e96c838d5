"""
Deliveries on a disk that fails or loses power; started by `test_disk_faults` under a preload.

`fail OP N`: the n-th write, sync or truncation of the journal fails, for each N-th n; `read-only`: it and all changes
after it. `cut SEED IMAGES`: one delivery is
recorded, and images of what a power cut may leave are recovered against the world as it was at that moment; `every N`:
each N-th of all images. A JSON line for each; effects are files, counted where no memory of the journal reaches.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import logging
import os
import random
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import structlog

from journal import Journal, advance_stage
from journal.errors import JournalError
from journal.journal import NewTask
from journal.log import poison
from journal.results import Advanced, Refused
from recovery.verify import verify
from tests.builders import FileStep, pipeline, step

STEPS = ("merge_pr", "ratchet", "deploy_init")
OPS = {"write": 1, "sync": 2, "truncate": 3, "read-only": 4}
WRITE, SYNC, TRUNCATE, REMOVE = 1, 2, 3, 5
SECTOR = 512
SUBSETS = 6
"""Of so many unsynced calls each subset is tried."""


async def deliver(root: Path) -> bool:
    """Open journal and task where they are missing, drive; True = the task is at its end."""
    far_side = FileStep(root / "world")
    definition = pipeline(*(step(name, attempts=9) for name in STEPS))
    steps = dict.fromkeys(STEPS, far_side)
    async with Journal.open(root / "log" / "j.db", pipeline=definition, steps=steps) as journal:
        if not (await journal.log.read("T-1")).version:
            await journal.open_task(NewTask("T-1", "acme/widgets", "feature/1"), actor="operator")
        result = await advance_stage(journal, "T-1", actor="startup")
        return isinstance(result, Advanced) or (isinstance(result, Refused) and "done" in result.reason)


def forked(work: object) -> int:
    """Run a callable in a process of its own; its exit code."""
    child = os.fork()
    if not child:
        code = 3
        try:
            code = work()  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def place(root: Path) -> Path:
    for name in ("log", "world"):
        (root / name).mkdir(parents=True)
    return root


def outcome(root: Path) -> dict[str, object]:
    """Effects in the world, calls that reached it, and effects whose intent the journal lacks."""
    far_side, keys = FileStep(root / "world"), [f"T-1/1/{name}" for name in STEPS]
    return {
        "effects": sum(far_side.effect(key).exists() for key in keys),
        "calls": [len(far_side.calls(key)) for key in keys],
        "there": [far_side.effect(key).exists() for key in keys],
        "unwritten": [key for key in keys if far_side.effect(key).exists() and key not in intents(root)],
    }


def intents(root: Path) -> set[str]:
    """Keys that the journal says it began; read by SQLite alone."""
    if not (root / "log" / "j.db").exists():
        return set()
    with closing(sqlite3.connect(root / "log" / "j.db")) as db:
        try:
            return {key for (key,) in db.execute("SELECT key FROM journal_events WHERE kind = 'intended'")}
        except sqlite3.OperationalError:  # cut before the table was made
            return set()


def recover(root: Path) -> int:
    """What a person and a restart do: look whether the log is whole, let it be written again, drive."""
    db_path = root / "log" / "j.db"
    if poison.reason(db_path):
        with closing(sqlite3.connect(db_path)) as db:
            if not verify(db).intact:
                return 4
        poison.lift(db_path)
    return 0 if asyncio.run(deliver(root)) else 5


# -- the n-th call fails -----------------------------------------------------------------------------------------------


def fail(base: Path, op: str, step_size: int) -> None:
    shim = ctypes.CDLL(None)
    for n in itertools.count(1, step_size):
        root = place(base / f"{op}{n}")

        def hit(root: Path = root, n: int = n) -> int:
            shim.shim_watch(str(root / "log").encode(), -1)
            shim.shim_fail(OPS[op], n)
            try:
                done = asyncio.run(deliver(root))
            except (JournalError, OSError):
                done = False
            return (0 if done else 1) if shim.shim_failed() else 2

        first = forked(hit)
        during = outcome(root)
        second = forked(lambda root=root: recover(root))
        print(json.dumps({"n": n, "first": first, "during": during, "second": second, **outcome(root)}), flush=True)
        if first == 2:
            return
        shutil.rmtree(root)


# -- power is cut ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call; `at` is an offset, or the new size."""

    op: int
    path: str
    at: int
    data: bytes


def recorded(file: Path) -> list[Call]:
    raw, found, at = file.read_bytes(), [], 0
    while at < len(raw):
        op, name, where, size = struct.unpack_from("4Q", raw, at)
        at += 32
        path = raw[at : at + name].decode()
        at += name
        found.append(Call(op, path, where, raw[at : at + size]))
        at += size
    return found


@dataclass(frozen=True, slots=True)
class Image:
    """Which unsynced calls reached the disk, by their place, and where one of them was torn."""

    at: int  # so many calls were made
    kept: frozenset[int]
    torn: tuple[int, int] = (-1, 0)  # place, and how many bytes of it reached the disk


def unsynced(calls: list[Call]) -> list[int]:
    """
    Places of the calls that nothing has made durable yet: a file's own sync, or its folder's where it was removed.

    The world is not ours to lose: it survives whole.
    """
    synced = {c.path: n for n, c in enumerate(calls) if c.op == SYNC}

    def durable(c: Call) -> int:
        return synced.get(str(Path(c.path).parent) if c.op == REMOVE else c.path, -1)

    return [n for n, c in enumerate(calls) if c.op != SYNC and "/world/" not in c.path and n >= durable(c)]


def laid(calls: list[Call], wanted: Image) -> dict[str, bytes]:
    """The files after a power cut: all that was synced, and the chosen ones of the rest."""
    calls = calls[: wanted.at]
    lost = frozenset(unsynced(calls)) - wanted.kept
    files: dict[str, bytearray] = {}
    for n, c in enumerate(calls):
        if c.op == SYNC or n in lost:
            continue
        if c.op == REMOVE:
            files.pop(c.path, None)
            continue
        content = files.setdefault(c.path, bytearray())
        if c.op == TRUNCATE:
            del content[c.at :]
            content.extend(bytes(max(0, c.at - len(content))))
            continue
        data = c.data[: wanted.torn[1]] if n == wanted.torn[0] else c.data
        content.extend(bytes(max(0, c.at + len(data) - len(content))))
        content[c.at : c.at + len(data)] = data
    return {path: bytes(content) for path, content in files.items()}


def some(calls: list[Call], seed: int, images: int) -> Iterator[Image]:
    """Drawn: nothing of the rest, all of it, or half of it with one write torn."""
    for n in range(images):
        chance = random.Random(f"{seed}/{n}")
        at, mode = chance.randrange(1, len(calls) + 1), ("none", "all", "some", "some")[n % 4]
        rest = unsynced(calls[:at])
        kept = [] if mode == "none" else rest if mode == "all" else [k for k in rest if chance.random() < 0.5]
        yield Image(at, frozenset(kept), _tear(calls, chance, kept) if mode == "some" else (-1, 0))


def _tear(calls: list[Call], chance: random.Random, kept: list[int]) -> tuple[int, int]:
    writes = [k for k in kept if calls[k].op == WRITE]
    if not writes:
        return (-1, 0)
    k = chance.choice(writes)
    return (k, chance.randrange(0, len(calls[k].data) + 1, SECTOR))


def every(calls: list[Call]) -> Iterator[Image]:
    """
    At each call: each subset of what is unsynced, and the last write torn at each sector.

    Of more than `SUBSETS` unsynced calls (while the tables are made): each prefix, each alone, and all but each.
    """
    for at in range(1, len(calls) + 1):
        rest = unsynced(calls[:at])
        yield from (Image(at, kept) for kept in _subsets(rest))
        if rest and rest[-1] == at - 1 and calls[at - 1].op == WRITE:
            whole = len(calls[at - 1].data)
            yield from (Image(at, frozenset(rest), (at - 1, cut)) for cut in range(SECTOR, whole, SECTOR))


def _subsets(rest: list[int]) -> Iterator[frozenset[int]]:
    if len(rest) <= SUBSETS:
        for bits in itertools.product((False, True), repeat=len(rest)):
            yield frozenset(itertools.compress(rest, bits))
        return
    for k in range(len(rest)):
        yield frozenset(rest[:k])
        yield frozenset((rest[k],))
        yield frozenset(rest) - {rest[k]}
    yield frozenset(rest)


def distinct(calls: list[Call], images: Iterator[Image]) -> Iterator[tuple[Image, dict[str, bytes]]]:
    """Many choices leave the same files."""
    seen = set[tuple[tuple[str, bytes], ...]]()
    for wanted in images:
        files = laid(calls, wanted)
        told = tuple(sorted((path, sha256(content).digest()) for path, content in files.items()))
        if told not in seen:
            seen.add(told)
            yield wanted, files


def whole_delivery(base: Path) -> tuple[Path, list[Call]]:
    """Record a delivery on a good disk; locks and tokens are made anew at each start."""
    root, file = place(base / "whole"), base / "calls"
    shim = ctypes.CDLL(None)

    def record() -> int:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        shim.shim_watch(str(root).encode(), fd)
        return 0 if asyncio.run(deliver(root)) else 1

    if forked(record):
        sys.exit("the delivery failed by itself")
    return root, [c for c in recorded(file) if ".lock" not in c.path and not c.path.endswith("local-token")]


def cut(base: Path, choose: Callable[[list[Call]], Iterator[Image]]) -> None:
    old, calls = whole_delivery(base)
    for n, (wanted, files) in enumerate(distinct(calls, choose(calls))):
        left = place(base / f"image{n}")
        for path, content in files.items():
            target = left / Path(path).relative_to(old)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        before = outcome(left)
        second = forked(lambda left=left: recover(left))
        told = {"n": n, "at": wanted.at, "of": len(calls), "before": before, "second": second}
        print(json.dumps({**told, **outcome(left)}), flush=True)
        shutil.rmtree(left)


def one_in(images: Iterator[Image], step: int) -> Iterator[Image]:
    return itertools.islice(images, 0, None, step)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    match sys.argv[2:]:
        case ["fail", op, step_size]:
            fail(Path(sys.argv[1]), op, int(step_size))
        case ["cut", seed, images]:
            cut(Path(sys.argv[1]), lambda calls: some(calls, int(seed), int(images)))
        case ["every", step_size]:
            cut(Path(sys.argv[1]), lambda calls: one_in(every(calls), int(step_size)))
        case _:
            sys.exit(__doc__)
