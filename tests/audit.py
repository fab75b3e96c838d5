"""
`make audit`: are the packages that we run on the pinned ones, and does anybody know a hole in one of them?

Two parts, and the output says which was done. Offline, always: what is installed is what `.ci/constraints.txt` pins.
Online, where a service of known holes answers (pip-audit asks it): each pinned version. A package that the service did
not tell about counts as not audited, never as clean.

Exit 0: nothing was found; 1: something was; the last line says what was not done.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / ".ci" / "constraints.txt"
OURS = frozenset({"transition-journal", "setuptools"})
"""Not from an index: ourselves, and what venv brings along before Python 3.12."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
TIMEOUT_S = 300.0


def canonical(name: str) -> str:
    """A package's name as every index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> Mapping[str, str]:
    """Version by name, as pinned."""
    lines = [line.partition("#")[0].strip() for line in PINS.read_text("ascii").splitlines()]
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def unpinned(installed: Mapping[str, str]) -> list[str]:
    """What is installed and is not what is pinned."""
    pinned = pins()
    return [
        f"{name} {version} is installed, {pinned.get(name, 'nothing')} is pinned"
        for name, version in sorted(installed.items())
        if name not in OURS and pinned.get(name) != version
    ]


def running(of: str = "transition-journal") -> set[str]:
    """Every package that the service loads or may load: what we declare, and what that needs, without extras."""
    found: set[str] = set()
    todo = [of]
    while todo:
        try:
            needs: Iterable[str] = requires(todo.pop()) or ()
        except PackageNotFoundError:
            continue
        for need in needs:
            name = _NAME.match(need)
            if name and "extra ==" not in need and canonical(name[0]) not in found:
                found.add(canonical(name[0]))
                todo.append(name[0])
    return found


def known_holes(told: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """What pip-audit's answer says: holes, and packages that it learnt nothing about."""
    holes, silent = [], []
    entries = told.get("dependencies")
    for entry in entries if isinstance(entries, list) else ():
        if "skip_reason" in entry:
            silent.append(str(entry["name"]))
        holes += [f"{entry['name']} {entry['version']}: {hole['id']}" for hole in entry.get("vulns", ())]
    return holes, silent


def ask(program: str) -> tuple[list[str], str]:
    """Ask the service of known holes: holes, and why the answer is not whole ("" = it is)."""
    argv = [
        program,
        "--requirement",
        str(PINS),
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner=off",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        told = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return [], f"nobody was asked ({type(error).__name__})"
    holes, silent = known_holes(told)
    return holes, f"the service said nothing about {len(silent)} of {len(pins())} packages" if silent else ""


def main() -> int:
    """Print what was looked at and what was found."""
    installed = {canonical(d.metadata["Name"]): d.version for d in distributions()}
    faults = unpinned(installed)
    print(f"audit: {len(installed)} packages installed, {len(running())} of them at run time; pinned: {len(pins())}")
    holes, undone = ask(sys.argv[1] if len(sys.argv) > 1 else "pip-audit")
    for fault in (*faults, *holes):
        print(f"audit: {fault}")
    print(f"audit: known holes NOT looked up: {undone}" if undone else "audit: known holes looked up for every package")
    return int(bool(faults or holes))


if __name__ == "__main__":
    sys.exit(main())
