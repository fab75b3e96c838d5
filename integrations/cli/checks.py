"""What `journal doctor` looks at. Every check answers with findings; none raises, none changes anything."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from integrations.cli.given import Given
from integrations.settings import Settings
from integrations.wiring import build
from journal.errors import JournalError
from journal.events import NOBODY
from journal.locks import is_held, read_holder
from journal.log import poison
from journal.log.ground import LAYERS, SPACE_RESERVE, VOLATILE, mount_of, wal_reset_bug
from journal.log.offline import Standing, open_evidence, standing
from journal.log.schema import SCHEMA_NUMBER, missing_guards, schema_number
from journal.ownership import Locks, lock_folder

OK, NOTE, FAULT = "ok", "note", "fault"

PACKAGES = ("journal", "projections", "recovery", "integrations")
GIT_NEEDED = (2, 38)
WAL_LARGE = 1 << 30
"""Bytes of a WAL above which some reader must have been reading for very long (R89)."""


@dataclass(frozen=True, slots=True)
class Found:
    """One finding."""

    level: str  # ok, note, fault
    what: str
    found: str
    remedy: str = ""


def examine(given: Given) -> list[Found]:
    """Every check, in the order in which things build upon each other."""
    found = [*_packages(), *_sqlite(), *_git()]
    try:
        settings = given.settings()
    except JournalError as error:
        found.append(Found(FAULT, "configuration", str(error), "mend it and ask again"))
        return (
            found
            if given.db is None
            else [*found, *_place(given.db.absolute(), deploys=False), *_file(given.db.absolute())]
        )
    deploys = any(step.get("use") == "self-deploy" for step in settings.values.steps.values())
    found += [*_configuration(settings), *_place(settings.db, deploys=deploys)]
    if settings.server is not None:
        from integrations.cli.server_checks import one_world, server_findings

        found += [*server_findings(settings.server, settings.db), *one_world(settings.values.steps)]
    return [*found, *_file(settings.db)]


def _packages() -> Iterator[Found]:
    """Four generic names: another distribution may have overwritten one without a word (STYLE "Packaging")."""
    places = {}
    for name in PACKAGES:
        with suppress(ImportError):
            places[name] = Path(str(import_module(name).__file__)).resolve().parent.parent
    if len(set(places.values())) != 1 or len(places) != len(PACKAGES):
        where = ", ".join(f"{name} from {place}" for name, place in places.items())
        yield Found(FAULT, "packages", f"not from one folder: {where}", "install into an environment of its own")
        return
    owners = metadata.packages_distributions()
    double = [name for name in PACKAGES if len(set(owners.get(name, ()))) > 1]
    if double:
        claimed = f"{', '.join(double)} belong to several distributions"
        yield Found(FAULT, "packages", claimed, "install into an environment of its own")
    else:
        yield Found(OK, "packages", f"all four from {next(iter(places.values()))}")


def _sqlite() -> Iterator[Found]:
    version = sqlite3.sqlite_version
    if wal_reset_bug():
        yield Found(
            NOTE,
            "SQLite",
            f"{version} has the WAL-reset bug; one writer that alone checkpoints cannot meet it",
            "let no other program write the file; 3.51.3, 3.50.7 and 3.44.6 are mended",
        )
    else:
        yield Found(OK, "SQLite", version)


def _git() -> Iterator[Found]:
    git = shutil.which("git")
    if git is None:
        yield Found(FAULT, "git", "not on PATH", "install git 2.38 or newer")
        return
    try:
        done = subprocess.run([git, "version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        yield Found(FAULT, "git", f"does not run: {error}", "install git 2.38 or newer")
        return
    text = done.stdout.strip()
    numbers = [int(part) for part in text.rpartition("version ")[2].split(".")[:2] if part.isdigit()]
    if tuple(numbers) < GIT_NEEDED:
        yield Found(FAULT, "git", f"{text or 'answers nothing'}; 2.38 is needed", "install a newer git")
    else:
        yield Found(OK, "git", text)


def _configuration(settings: Settings) -> Iterator[Found]:
    source = str(settings.file or "built-in defaults")
    try:
        parts = build(settings)
    except JournalError as error:
        yield Found(FAULT, "configuration", str(error), "mend it and ask again")
        return
    pipeline = parts.pipeline
    budgets = sum(pipeline.steps[name].plan.budget_ms // 1000 for edge in pipeline.edges for name in edge.steps)
    room = pipeline.reaper_max_running_s - budgets - pipeline.reaper_finalize_grace_s
    yield Found(OK, "configuration", f"{source}: {len(pipeline.stages)} stages, {len(pipeline.steps)} steps")
    yield Found(
        OK,
        "budgets",
        f"{pipeline.reaper_max_running_s} s exceed {budgets} s of steps and {pipeline.reaper_finalize_grace_s} s of "
        f"grace by {room} s",
    )
    for name, path in settings.values.integrations.git.repositories.items():
        folder = settings.path(path)
        if not (folder / "HEAD").is_file() and not (folder / ".git").exists():
            yield Found(FAULT, f"repository {name}", f"{folder} is no git repository", "`git clone --bare` it there")


def _place(db: Path, *, deploys: bool) -> Iterator[Found]:
    folder = db.parent
    if not folder.is_dir():
        yield Found(FAULT, "folder", f"{folder} does not exist", "create it")
        return
    mount = mount_of(folder)
    where = f"{mount.kind or 'unknown type'} at {mount.point or '?'}"
    local = "use a local disk or a named volume"
    if mount.network:
        yield Found(FAULT, "file system", f"{where}: locks and shared memory cannot be relied upon there", local)
    elif mount.kind in LAYERS:
        level = FAULT if deploys else NOTE
        yield Found(level, "file system", f"{where}: a container's own layer, gone with the container", local)
    elif mount.kind in VOLATILE:
        yield Found(NOTE, "file system", f"{where}: gone with the machine's next start", local)
    else:
        yield Found(OK, "file system", where)
    if db.exists() and mount_of(db).point == os.path.realpath(db):
        yield Found(FAULT, "mount", "the database file itself is mounted; its WAL lies elsewhere", "mount its folder")
    yield from _space(folder)


def _space(folder: Path) -> Iterator[Found]:
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    if free < SPACE_RESERVE:
        yield Found(
            FAULT, "space", f"{free >> 20} MiB free, no effect may start below {SPACE_RESERVE >> 20} MiB", "free some"
        )
    elif free < SPACE_RESERVE * 16:
        yield Found(NOTE, "space", f"{free >> 20} MiB free", "free some")
    else:
        yield Found(OK, "space", f"{free >> 30} GiB free")


def _file(db: Path) -> Iterator[Found]:
    if not db.exists():
        yield Found(NOTE, "journal", f"{db} does not exist yet", "`journal init` or `journal serve` creates it")
        return
    if reason := poison.reason(db):
        yield Found(FAULT, "poison", reason, "`journal verify`, then `journal doctor --unpoison`")
    yield from _rights(db)
    try:
        at_rest = standing(db) is Standing.AT_REST
        with open_evidence(db) as connection:
            yield from _inside(connection, at_rest=at_rest)
    except JournalError as error:
        yield Found(FAULT, "journal", str(error), "`journal verify` says more")
    with suppress(OSError):
        size = db.with_name(db.name + "-wal").stat().st_size
        if size > WAL_LARGE:
            yield Found(NOTE, "WAL", f"{size >> 20} MiB: somebody has been reading for very long", "end long readers")
    yield from _driver(db)


def _rights(db: Path) -> Iterator[Found]:
    if os.statvfs(db.parent).f_flag & os.ST_RDONLY:
        remedy = "for a service: see why in the kernel's log, then `mount -o remount,rw`; audits go on"
        yield Found(NOTE, "permissions", "the file system is mounted read-only", remedy)
    elif not os.access(db, os.R_OK | os.W_OK) or not os.access(db.parent, os.W_OK | os.X_OK):
        yield Found(NOTE, "permissions", "this user may not write here", "the service's user must be able to")
    for path, most in ((db, 0o664), (lock_folder(db), 0o700), (lock_folder(db) / "local-token", 0o600)):
        with suppress(OSError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & ~most & 0o777:
                yield Found(FAULT, "permissions", f"{path} has mode {mode:04o}", f"chmod {most:o} {path}")


def _inside(connection: sqlite3.Connection, *, at_rest: bool) -> Iterator[Found]:
    # Read as immutable, SQLite does not look at the mode and names the default.
    mode = "wal once it is opened" if at_rest else connection.execute("PRAGMA journal_mode").fetchone()[0]
    number = schema_number(connection)
    head = connection.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
    if number > SCHEMA_NUMBER:
        yield Found(FAULT, "schema", f"{number}, this program knows {SCHEMA_NUMBER}", "install the newer version")
    if missing := missing_guards(connection):
        yield Found(FAULT, "guards", f"the event table lost {', '.join(missing)}", "`journal verify`, restore a backup")
    yield Found(OK, "journal", f"schema {number}, journal_mode {mode}, head at position {head}")


def _driver(db: Path) -> Iterator[Found]:
    lock = Locks(db, NOBODY).writer_path()
    if not is_held(lock):
        yield Found(NOTE, "service", "nobody drives this journal at the moment", "`journal serve`")
        return
    holder = read_holder(lock)
    if not holder.address:
        yield Found(OK, "service", f"{holder} drives")
        return
    import httpx

    try:
        answer = httpx.get(f"{holder.address}/healthz", timeout=3.0, trust_env=False)
        yield Found(OK, "service", f"{holder} drives at {holder.address} and answers {answer.status_code}")
    except httpx.HTTPError as error:
        yield Found(
            FAULT, "service", f"{holder} at {holder.address} does not answer: {type(error).__name__}", "see its log"
        )
