"""
The marker files between the service, its deployer and its successor (S8, finding 8; reports R59, R62, R67).

INITIATED is the effect of `deploy_init`: linking it hands the deploy over, once and for ever. It says "never initiate
again"; it never says "done". RESULT says how the deployer's command ended. Both are written under a temporary name,
synced and linked, so a marker has its whole content or does not exist. Only the standard library is used, since the
deployer loads this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

_INITIATED, _RESULT = ".initiated.json", ".result.json"
_AUTHORITY = "DEPLOYS"
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_SIZE_LIMIT = 64 * 1024
TAIL_LIMIT = 2000
"""Characters of the command's output that a RESULT keeps."""


class UnreadableError(Exception):
    """A marker is torn, forged or cannot be read, or the folder is not ours: nothing is known."""

    def __init__(self, *, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{what}: {why}")


class NotLinkedError(Exception):
    """The marker provably does not exist: it failed before the link."""

    def __init__(self, *, why: str) -> None:
        self.why = why
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Initiated:
    """One deploy that was handed over."""

    key: str
    epoch: int
    attempt: int
    journal: str
    cites: str  # POSITION:HASH of the intent; "" when there was none
    main_sha: str
    digest: str
    environment: str
    order: int  # deploys run in this order; counted, since clocks jump
    at_us: int  # for people


@dataclass(frozen=True, slots=True)
class Result:
    """How the deploy command of one key ended."""

    key: str
    journal: str
    main_sha: str
    ok: bool
    code: int  # exit code; negative = signal
    tail: str  # the end of what it said


_Marker = TypeVar("_Marker", Initiated, Result)


def stem(key: str) -> str:
    """Name the files of a key: by its hash, so that no id ever becomes a path (R100)."""
    return hashlib.sha256(key.encode()).hexdigest()


def initiated_path(folder: Path, key: str) -> Path:
    """Where the INITIATED marker of a key lies."""
    return folder / f"{stem(key)}{_INITIATED}"


def result_path(folder: Path, key: str) -> Path:
    """Where the RESULT of a key lies."""
    return folder / f"{stem(key)}{_RESULT}"


def prepare_folder(folder: Path) -> None:
    """
    Make the folder, with the file that makes its silence an answer.

    A folder that exists without that file is left alone: it may be the mount point of a volume that is not there,
    and "no marker" in it would be no proof.

    Raises:
        OSError: It cannot be made.
    """
    if folder.exists():
        return
    fresh = folder.with_name(f".{folder.name}.{os.urandom(8).hex()}")
    fresh.mkdir(mode=0o700, parents=True)
    (fresh / _AUTHORITY).write_text(
        "Markers of deploys. Never empty this folder: a missing marker reads as no deploy.\n"
    )
    _sync_folder(fresh)
    try:
        fresh.rename(folder)
    except OSError:  # another process was first
        (fresh / _AUTHORITY).unlink()
        fresh.rmdir()
        if not folder.exists():
            raise
    _sync_folder(folder.parent)


def write(path: Path, marker: Initiated | Result) -> None:
    """
    Create a marker with its content, or not at all; never replace one.

    Raises:
        FileExistsError: A marker of this name is there already.
        NotLinkedError: It failed before the link: no marker is there.
        OSError: It failed at or after the link: whether the marker is there, and stays, is unknown.
    """
    content = json.dumps(asdict(marker), sort_keys=True).encode() + b"\n"
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        _write_synced(temporary, content)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise NotLinkedError(why=str(error)) from error
    try:
        # link() and not rename(): it refuses to replace, and the content is there from the first moment (S8).
        os.link(temporary, path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def read_initiated(folder: Path, key: str) -> Initiated | None:
    """
    Read the INITIATED marker of a key; None is an authoritative "there is none".

    Raises:
        UnreadableError: It, or the folder, cannot be read or believed.
    """
    return _read(initiated_path(folder, key), Initiated)


def read_result(folder: Path, key: str) -> Result | None:
    """
    Read the RESULT of a key; None means that there is none yet.

    Raises:
        UnreadableError: It, or the folder, cannot be read or believed.
    """
    return _read(result_path(folder, key), Result)


def all_initiated(folder: Path) -> tuple[list[Initiated], list[str]]:
    """
    Read every INITIATED marker, in the order of their hand-over, and name those that cannot be believed.

    Raises:
        UnreadableError: The folder cannot be read or is not ours.
    """
    _require_authority(folder)
    good: list[Initiated] = []
    bad: list[str] = []
    try:
        paths = sorted(folder.glob(f"[0-9a-f]*{_INITIATED}"))
    except OSError as error:
        raise UnreadableError(what=str(folder), why=str(error)) from error
    for path in paths:
        try:
            if marker := _read(path, Initiated):
                good.append(marker)
        except UnreadableError:
            bad.append(path.name)
    return sorted(good, key=lambda marker: (marker.order, marker.key)), bad


def _read(path: Path, shape: type[_Marker]) -> _Marker | None:
    try:
        marker = _parsed(_content(path), shape)
    except FileNotFoundError:
        # Asked after the miss: a volume that vanished meanwhile takes the folder's own file with it.
        _require_authority(path.parent)
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(what=path.name, why=str(error)) from error
    if not path.name.startswith(f"{stem(marker.key)}."):
        raise UnreadableError(what=path.name, why=f"names the key {marker.key!r}, which belongs elsewhere")
    return marker


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            message = "not a regular file"
            raise ValueError(message)
        return file.read(_SIZE_LIMIT + 1)


def _parsed(content: bytes, shape: type[_Marker]) -> _Marker:
    value = json.loads(content) if len(content) <= _SIZE_LIMIT else None
    # The annotations are the format: exactly these names, exactly these types (`str`, `int` or `bool`).
    expected = {field.name: field.type for field in fields(shape)}
    if not isinstance(value, dict) or {name: type(item).__name__ for name, item in value.items()} != expected:
        message = "not a marker of this kind"
        raise ValueError(message)
    marker = shape(**value)
    if not _COMMIT.match(marker.main_sha):
        message = "its target is no full commit id"
        raise ValueError(message)
    return marker


def _require_authority(folder: Path) -> None:
    try:
        found = (folder / _AUTHORITY).is_file()
    except OSError as error:
        raise UnreadableError(what=str(folder), why=str(error)) from error
    if not found:
        raise UnreadableError(what=str(folder), why="is not there, or is no folder of deploy markers")


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
