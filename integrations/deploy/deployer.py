"""
The deployer: a process of its own that outlives the service it replaces (R59, R60, R62, R65).

It runs the deploy command once for each INITIATED marker, in the order of their hand-over, writes the RESULTs, and
ends when none is left. One deployer works at a time, by a lock the kernel drops with it. It is idempotent by key: its
ledger says what was started and finished. Started by `python -m integrations.deploy.deployer`, by the service
(`--detach`) or by an agent of the host that watches the folder. Everything it needs is loaded before it begins, since
the command may replace the files it was loaded from.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from integrations.deploy.ledger import Entry, Ledger
from integrations.deploy.markers import (
    TAIL_LIMIT,
    Initiated,
    NotLinkedError,
    Result,
    UnreadableError,
    all_initiated,
    result_path,
    stem,
    write,
)

LOCK = "deployer.lock"
_LOOK_S = 0.2
_NOT_STARTED = 127


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    folder: Path
    environment: str
    command: tuple[str, ...]
    cwd: Path | None
    budget_s: float
    once: bool  # the command must not run a second time for a key, not even after the deployer died under it
    detach: bool


def main(argv: list[str]) -> int:
    """Work until no marker is left, or leave at once when another deployer works."""
    options = _options(argv)
    if options.detach:
        _detach(options.folder)
    left: set[str] = set()  # keys that this process could not settle; the next one tries again
    try:
        # Looked at again after the lock is free: a marker that came meanwhile, whose own deployer found the lock busy
        # and left, would otherwise wait for ever.
        while waiting := _pending(options, left):
            with _lock(options.folder / LOCK) as held:
                if held is None:
                    return 0
                _settle(waiting[0], options, left)
    except UnreadableError as error:
        _say(f"stopped: {error}")
        return 1
    return 0


def _pending(options: Options, left: set[str]) -> list[Initiated]:
    markers, bad = all_initiated(options.folder)
    for name in bad:
        _say(f"not believed: {name}")
    return [
        marker
        for marker in markers
        if marker.environment == options.environment
        and marker.key not in left
        and not result_path(options.folder, marker.key).exists()
    ]


def _settle(marker: Initiated, options: Options, left: set[str]) -> None:
    """Bring one marker to its RESULT, or leave it to a later deployer."""
    ledger = Ledger(options.folder)
    try:
        with _lock(options.folder / f"{stem(marker.key)}.running", options.budget_s) as running:
            if running is None:
                _say(f"{marker.key}: a command of an earlier deployer still runs")
                left.add(marker.key)
                return
            # Read under the lock: another deployer may have finished it since we looked.
            entry = ledger.entry(marker.key)
            if entry.started and not entry.finished and options.once:
                entry = _interrupted(marker, ledger)
            elif not entry.finished:
                entry = _run(marker, options, ledger, running)
            _publish(marker, entry, options)
    except (OSError, NotLinkedError) as error:
        _say(f"{marker.key}: {error}")
        left.add(marker.key)


def _run(marker: Initiated, options: Options, ledger: Ledger, running: int) -> Entry:
    ledger.started(marker.key, marker.main_sha)
    log = options.folder / f"{stem(marker.key)}.log"
    with log.open("ab") as output:
        code = _command(marker, options, running, output.fileno())
    tail = _tail(log)
    ledger.finished(marker.key, marker.main_sha, ok=code == 0, code=code, tail=tail)
    return Entry(True, True, code == 0, code, tail)


def _interrupted(marker: Initiated, ledger: Ledger) -> Entry:
    tail = (
        "the deployer died while the command ran, and the command is not declared idempotent: nobody knows how it ended"
    )
    ledger.finished(marker.key, marker.main_sha, ok=False, code=-signal.SIGKILL, tail=tail)
    return Entry(True, True, False, -signal.SIGKILL, tail)


def _command(marker: Initiated, options: Options, running: int, output: int) -> int:
    named = {
        "key": marker.key,
        "fence": f"{marker.epoch}.{marker.attempt}",
        "journal": marker.journal,
        "target": marker.main_sha,
        "digest": marker.digest,
        "environment": marker.environment,
    }
    env = dict(os.environ) | {f"TRANSITION_{name.upper()}": value for name, value in named.items()}
    try:
        # The command holds the lock of its key: should this deployer die, the next one waits for the command's end.
        process = subprocess.Popen(
            [_filled(part, named) for part in options.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=options.cwd,
            start_new_session=True,
            pass_fds=(running,),
        )
    except (OSError, ValueError) as error:
        os.write(output, f"not started: {error}\n".encode())
        return _NOT_STARTED
    try:
        return process.wait(timeout=options.budget_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        os.write(output, f"killed after {options.budget_s:g} s\n".encode())
        return process.wait()


def _filled(part: str, named: dict[str, str]) -> str:
    for name in ("target", "digest", "key", "environment"):
        part = part.replace(f"{{{name}}}", named[name])
    return part


def _publish(marker: Initiated, entry: Entry, options: Options) -> None:
    result = Result(marker.key, marker.journal, marker.main_sha, entry.ok, entry.code, entry.tail)
    with suppress(FileExistsError):
        write(result_path(options.folder, marker.key), result)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * TAIL_LIMIT))
        return file.read().decode("utf-8", "replace").strip()[-TAIL_LIMIT:]


@contextmanager
def _lock(path: Path, patience_s: float = 0) -> Iterator[int | None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor if _taken(descriptor, patience_s) else None
    finally:
        os.close(descriptor)


def _taken(descriptor: int, patience_s: float) -> bool:
    for _ in range(1 + int(patience_s / _LOOK_S)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if patience_s:
                select.select([], [], [], _LOOK_S)
        else:
            return True
    return False


def _detach(folder: Path) -> None:
    """
    Leave the starter: a session of our own, no pipe of it, and no child that it would have to bury.

    The starter's group is ended as soon as its child is, so that child waits until we have left.
    """
    heard, told = os.pipe()
    if os.fork():
        os.close(told)
        os._exit(0 if os.read(heard, 1) else 1)
    os.setsid()
    log = os.open(folder / "deployer.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(heard)
    os.write(told, b".")
    os.close(told)


def _say(text: str) -> None:
    sys.stderr.write(f"deployer {os.getpid()}: {text}\n")
    sys.stderr.flush()


def _options(argv: list[str]) -> Options:
    parser = argparse.ArgumentParser(prog="deployer", description=__doc__, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--cwd", type=Path)
    parser.add_argument("--budget-s", type=float, default=1800.0)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("command", nargs="+", help="the deploy command, after `--`")
    found = parser.parse_args(argv)
    return Options(
        folder=found.folder,
        environment=found.environment,
        command=tuple(found.command),
        cwd=found.cwd,
        budget_s=found.budget_s,
        once=found.once,
        detach=found.detach,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
