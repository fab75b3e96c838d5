"""
Deliveries on a disk that fails or loses power; started by `test_disk_faults` under a preload.

`fail OP`: the n-th write, sync or truncation of the journal fails, for every n. `cut SEED IMAGES`: one delivery is
recorded, and images of what a power cut may leave are recovered against the world as it was at that moment. A JSON line
for each; effects are files, counted where no memory of the journal reaches.
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
from contextlib import closing
from dataclasses import dataclass
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
OPS = {"write": 1, "sync": 2, "truncate": 3}
WRITE, SYNC, TRUNCATE = 1, 2, 3
SECTOR = 512


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


def fail(base: Path, op: str) -> None:
    shim = ctypes.CDLL(None)
    for n in itertools.count(1):
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


def image(calls: list[Call], chance: random.Random, root: Path, old: Path, mode: str) -> None:
    """What may be on the disk after these calls: all that was synced, and any of the rest; the world survives whole."""
    place(root)
    synced = {c.path: n for n, c in enumerate(calls) if c.op == SYNC}
    files: dict[str, bytearray] = {}
    for n, c in enumerate(calls):
        survives = "/world/" in c.path or n < synced.get(c.path, -1)
        keep = survives or mode == "all" or (mode == "some" and chance.random() < 0.5)
        if c.op == SYNC or not keep:
            continue
        content = files.setdefault(c.path, bytearray())
        if c.op == TRUNCATE:
            del content[c.at :]
            content.extend(bytes(max(0, c.at - len(content))))
            continue
        torn = not survives and mode == "some" and chance.random() < 0.3
        data = c.data[: chance.randrange(0, len(c.data) + 1, SECTOR)] if torn else c.data
        content.extend(bytes(max(0, c.at + len(data) - len(content))))
        content[c.at : c.at + len(data)] = data
    for path, content in files.items():
        target = root / Path(path).relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def cut(base: Path, seed: int, images: int) -> None:
    root, file = place(base / "whole"), base / "calls"
    shim = ctypes.CDLL(None)

    def record() -> int:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        shim.shim_watch(str(root).encode(), fd)
        return 0 if asyncio.run(deliver(root)) else 1

    if forked(record):
        sys.exit("the delivery failed by itself")
    calls = [c for c in recorded(file) if ".lock" not in c.path and not c.path.endswith("local-token")]
    points = range(1, len(calls) + 1)
    for n in range(images):
        chance = random.Random(f"{seed}/{n}")
        at, mode = chance.choice(points), ("none", "all", "some", "some")[n % 4]
        left = base / f"image{n}"
        image(calls[:at], chance, left, root, mode)
        before = outcome(left)
        second = forked(lambda left=left: recover(left))
        told = {"n": n, "at": at, "of": len(calls), "mode": mode, "before": before, "second": second}
        print(json.dumps({**told, **outcome(left)}), flush=True)
        shutil.rmtree(left)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if sys.argv[2] == "fail":
        fail(Path(sys.argv[1]), sys.argv[3])
    else:
        cut(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4]))
