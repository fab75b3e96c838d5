"""
The wheel holds the four packages and nothing else, and what it installs runs (decision 0003).

`python -m tests.wheel` builds it, installs it in a fresh environment, and runs it with `-P` from an empty folder, so
that nothing of this repository can stand in for what the wheel forgot. Exits 1 with the reason.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = frozenset({"journal", "projections", "recovery", "integrations"})
_LOADED = "import {names}; print(*{{m.__path__[0].rpartition('/')[0] for m in ({names})}})".format(
    names=", ".join(sorted(PACKAGES))
)


class WheelFaultError(Exception):
    """The wheel is not what it should be."""


def check_contents(names: Iterable[str]) -> None:
    """Refuse a wheel that lacks one of the four, lacks its py.typed, or brings anything else."""
    held = set(names)
    tops = {name.split("/", 1)[0] for name in held if not name.split("/", 1)[0].endswith(".dist-info")}
    if tops != PACKAGES:
        raise WheelFaultError(f"the wheel holds {sorted(tops)} instead of {sorted(PACKAGES)}")
    if untyped := [package for package in sorted(PACKAGES) if f"{package}/py.typed" not in held]:
        raise WheelFaultError(f"the wheel holds no py.typed for {untyped}")


def _run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelFaultError(f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def build(into: Path) -> Path:
    """Build the wheel with the hatchling of this environment and return its path."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into, cwd=ROOT)
    (wheel,) = into.glob("*.whl")
    return wheel


def check_installed(wheel: Path, folder: Path) -> str:
    """Install the wheel in a fresh environment below `folder`, run it from an empty folder, return its version line."""
    venv.create(folder / "venv", with_pip=True)
    python, empty = folder / "venv/bin/python", folder / "empty"
    empty.mkdir()
    pins = ROOT / ".ci/constraints.txt"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", pins, wheel, cwd=empty)
    places = _run(python, "-P", "-c", _LOADED, cwd=empty).split()
    if len(places) != 1 or not Path(places[0]).is_relative_to(folder):
        raise WheelFaultError(f"the four packages are loaded from {places}")
    return _run(python, "-P", folder / "venv/bin/journal", "--version", cwd=empty)


def main() -> int:
    """Build, look inside, install, run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        try:
            wheel = build(folder)
            with zipfile.ZipFile(wheel) as archive:
                check_contents(archive.namelist())
            version = check_installed(wheel, folder)
        except WheelFaultError as fault:
            print(f"wheel-check: {fault}")
            return 1
    print(f"wheel-check: {wheel.name} holds the four packages and runs: {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
