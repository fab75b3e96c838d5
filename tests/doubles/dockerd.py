"""A Docker engine of the tests' own, without networks and without a registry: started, used, stopped, cleaned away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.conftest import missing, need_tool


@contextmanager
def running_engine() -> Iterator[str]:
    """Run `dockerd` as root on a socket of its own; gives the value for DOCKER_HOST."""
    daemon = need_tool("dockerd")
    need_tool("docker")
    need_tool("busybox")
    if os.geteuid() != 0:
        missing("root, which dockerd needs,")
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    host = f"unix://{folder}/socket"
    argv: list[str | Path] = [daemon, "--host", host, "--data-root", folder / "data", "--exec-root", folder / "exec"]
    argv += ["--pidfile", folder / "pid", "--bridge=none", "--iptables=false"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        if not _answers(process, host):
            missing(f"a Docker engine that starts here ({_last_line(folder / 'log')})")
        yield host
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        _clean(folder)


def _answers(process: subprocess.Popen[bytes], host: str) -> bool:
    for _ in range(150):
        if process.poll() is not None:
            return False
        asked = subprocess.run(["docker", "--host", host, "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return True
        time.sleep(0.1)
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() or ["it said nothing"]
    return lines[-1][-200:]


def _clean(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)
