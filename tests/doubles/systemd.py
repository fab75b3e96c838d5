"""
A stand-in for `systemd-run` and `systemctl` where no systemd runs: names are exclusive, ended units stay to be shown.

    python systemd.py FOLDER run|ctl ARGUMENT...     a file FOLDER/down makes it unreachable, as outside a systemd host
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def run(folder: Path, argv: list[str]) -> int:
    split = argv.index("--")
    options, command = argv[:split], argv[split + 1 :]
    told = [o.partition("=")[::2] for o in options]
    name = next(value for option, value in told if option == "--unit")
    environment = [value for option, value in told if option == "--setenv"]
    kept = ("--property", "RemainAfterExit=yes") in told
    unit = folder / f"{name}.service"
    try:
        unit.mkdir()
    except FileExistsError:
        print(f"Failed to start transient service unit: Unit {name}.service was already loaded", file=sys.stderr)
        return 1
    (unit / "environment").write_text(json.dumps(environment))
    waiting, own = os.pipe()
    if os.fork():
        os.close(own)
        os.read(waiting, 1)  # until the unit stands in a session of its own: our end ends whoever is in ours
        return 0
    os.setsid()
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.closerange(3, 256)  # the pipe's end too
    done = subprocess.run(
        command, capture_output=True, check=False, env=dict(os.environ, **dict(e.split("=", 1) for e in environment))
    )
    (unit / "log").write_bytes(done.stdout + done.stderr)
    (unit / "code.part").write_text(str(done.returncode))
    (unit / "code.part").rename(unit / "code")
    if not kept and done.returncode == 0:
        unit.rename(folder / f"collected-{os.getpid()}")
    os._exit(0)


def show(folder: Path, unit: Path) -> dict[str, str]:
    if not unit.is_dir():
        return {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "Result": "success"}
    environment = " ".join(json.loads((unit / "environment").read_text()))
    shown = {"LoadState": "loaded", "Environment": environment, "ExecMainStatus": "0", "Result": "success"}
    if not (unit / "code").exists():
        return shown | {"ActiveState": "active", "SubState": "running"}
    code = int((unit / "code").read_text())
    if code:
        return shown | {
            "ActiveState": "failed",
            "SubState": "failed",
            "Result": "exit-code",
            "ExecMainStatus": str(code),
        }
    return shown | {"ActiveState": "active", "SubState": "exited"}


def main(folder: Path, role: str, argv: list[str]) -> int:
    if (folder / "down").exists():
        print("System has not been booted with systemd as init system (PID 1). Can't operate.", file=sys.stderr)
        return 1
    if role == "run":
        return run(folder, argv)
    unit = folder / argv[-1]
    if "show" in argv:
        print("\n".join(f"{name}={value}" for name, value in show(folder, unit).items()))
    elif (unit / "log").exists():
        sys.stdout.write((unit / "log").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
