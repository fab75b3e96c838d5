"""
The scenery of the demo: a real bare repository with a main branch and N feature branches that raise coverage.

Made by one `git fast-import`, with fixed names and times, so the same call gives the same commit ids. Each branch
touches its own module and its own entry of `coverage.json`, whose layout lets all branches merge cleanly, and carries
the same numbers once more below `reports/`, as JSON, Cobertura or lcov in turn.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from journal.children import child_env

REPO = "acme/widgets"
BASE = "main"
REPORTS = ("reports/{branch}.json", "reports/{branch}.xml", "reports/{branch}.info", "coverage.json")
"""Where a branch's report stands in its tree, for `reports` in journal.toml: the first that exists counts."""
_LINES, _BRANCHES = 10, 4
_START = (5, 1)  # lines and branches covered on main, for every module
_BORN_S = 1_767_225_600
_WHO = "Widget Works <widgets@localhost>"


@dataclass(frozen=True, slots=True)
class Feature:
    """One branch of the scenery."""

    branch: str
    head: str
    module: str  # the one file it touches
    lines: tuple[int, int]  # covered, total of that module
    branches: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scenery:
    """What was built."""

    repository: Path  # the bare repository
    main: str
    features: tuple[Feature, ...]

    @property
    def paths(self) -> dict[str, Path]:
        """The repository's name and place, as the adapters want them."""
        return {REPO: self.repository}


def build_scenery(folder: Path, tasks: int) -> Scenery:
    """
    Build the bare repository `acme/widgets.git` in `folder`, with branches `feature/1` to `feature/<tasks>`.

    Raises:
        FileExistsError: It is there already.
        subprocess.CalledProcessError: Git failed; what it said is in `stderr`.
    """
    repository = folder / f"{REPO}.git"
    repository.parent.mkdir(parents=True, exist_ok=True)
    repository.mkdir()
    _git(repository, "init", "--quiet", "--bare", f"--initial-branch={BASE}")
    _git(repository, "fast-import", "--quiet", "--done", feed=_history(tasks).encode())
    listed = _git(repository, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads")
    heads = dict(line.split(" ") for line in listed.splitlines())
    features = (
        Feature(f"feature/{n}", heads[f"feature/{n}"], _module(n), (_raised(n), _LINES), (3, _BRANCHES))
        for n in range(1, tasks + 1)
    )
    return Scenery(repository, heads[BASE], tuple(features))


def _raised(n: int) -> int:
    return 7 + n % 3


def _module(n: int) -> str:
    return f"widgets/part_{n}.py"


def _history(tasks: int) -> str:
    """The stream for fast-import: main, then each branch on top of it."""
    numbers = {_module(n): _START for n in range(1, tasks + 1)}
    files = {"widgets/__init__.py": '"""Widgets."""\n', "coverage.json": _mergeable_json(numbers)}
    files |= {_module(n): _source(n, "plain") for n in range(1, tasks + 1)}
    commits = [_commit(BASE, "", 0, "A package of widgets", files)]
    for n in range(1, tasks + 1):
        raised = numbers | {_module(n): (_raised(n), 3)}
        changed = {_module(n): _source(n, "polished"), "coverage.json": _mergeable_json(raised)}
        changed |= dict([_extra_report(n, raised)])
        commits.append(_commit(f"feature/{n}", BASE, n, f"Polish widget {n}", changed))
    return "".join([*commits, "done\n"])


def _commit(branch: str, parent: str, n: int, title: str, files: dict[str, str]) -> str:
    lines = [f"commit refs/heads/{branch}", f"committer {_WHO} {_BORN_S + 60 * n} +0000", _data(title + "\n")]
    if parent:
        lines.append(f"from refs/heads/{parent}")
    lines += [f"M 100644 inline {path}\n{_data(content)}" for path, content in files.items()]
    return "\n".join(lines) + "\n\n"


def _data(content: str) -> str:
    return f"data {len(content.encode())}\n{content}"


def _source(n: int, finish: str) -> str:
    return f'"""Widget {n}."""\n\n\ndef finish() -> str:\n    """Tell how widget {n} looks."""\n    return "{finish}"\n'


def _summary(lines: int, branches: int) -> dict[str, int]:
    return {
        "covered_lines": lines,
        "num_statements": _LINES,
        "missing_lines": _LINES - lines,
        "excluded_lines": 0,
        "num_branches": _BRANCHES,
        "covered_branches": branches,
        "missing_branches": _BRANCHES - branches,
    }


def _mergeable_json(numbers: dict[str, tuple[int, int]]) -> str:
    """Coverage.py's format without its totals and times: with them no two branches would ever merge."""
    files = {path: {"summary": _summary(*counts)} for path, counts in numbers.items()}
    return json.dumps({"meta": {"format": 3, "branch_coverage": True}, "files": files}, indent=1) + "\n"


def _extra_report(n: int, numbers: dict[str, tuple[int, int]]) -> tuple[str, str]:
    stem = f"reports/feature/{n}"
    if n % 3 == 1:
        return f"{stem}.json", _mergeable_json(numbers)
    if n % 3 == 2:
        return f"{stem}.xml", _cobertura(numbers)
    return f"{stem}.info", _lcov(numbers)


def _cobertura(numbers: dict[str, tuple[int, int]]) -> str:
    classes = []
    for path, (lines, branches) in numbers.items():
        rows = [f'<line number="{at}" hits="{int(at <= lines)}"/>' for at in range(1, _LINES)]
        share = f"{100 * branches // _BRANCHES}% ({branches}/{_BRANCHES})"
        hits = int(lines >= _LINES)
        rows.append(f'<line number="{_LINES}" hits="{hits}" branch="true" condition-coverage="{share}"/>')
        classes.append(f'<class name="part" filename="{path}"><methods/><lines>{"".join(rows)}</lines></class>')
    body = f'<packages><package name="widgets"><classes>{"".join(classes)}</classes></package></packages>'
    return f'<?xml version="1.0" ?>\n<coverage version="7">{body}</coverage>\n'


def _lcov(numbers: dict[str, tuple[int, int]]) -> str:
    records = []
    for path, (lines, branches) in numbers.items():
        rows = [f"SF:{path}", *(f"DA:{at},{int(at <= lines)}" for at in range(1, _LINES + 1))]
        rows += [f"LF:{_LINES}", f"LH:{lines}"]
        rows += [f"BRDA:{_LINES},0,{at},{int(at < branches)}" for at in range(_BRANCHES)]
        rows += [f"BRF:{_BRANCHES}", f"BRH:{branches}", "end_of_record"]
        records.append("\n".join(rows))
    return "\n".join(records) + "\n"


def _git(repository: Path, *argv: str, feed: bytes = b"") -> str:
    env = child_env(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", LC_ALL="C")
    command = ["git", f"--git-dir={repository}", *argv]
    return subprocess.run(command, input=feed, capture_output=True, check=True, env=env).stdout.decode()
