"""
Which test proves what: reads the `proves` markers, writes docs/traceability.md (`make traceability`).

The ids and what they say come from docs/reference; the tests are read as text, never imported, so that a missing
package or tool cannot hide one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.gaps import GAPS

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/traceability.md"
MUST_BE_PROVED = ("docs/reference/requirements.md", "docs/reference/protocol.md")
MAY_BE_PROVED = ("docs/reference/reports.md", "docs/reference/recovery.md")
_ENTRY = re.compile(r"^- \*\*((?:FR|DC|NFR|TR)-\d+|[A-Z]\d+)\*\* (.*)$", re.MULTILINE)
_ID = re.compile(r"([A-Z]+)(-?)0*(\d+)\Z")

Proofs = Mapping[str, Sequence[str]]
"""Tests by the id they prove, each as `tests/unit/test_x.py::test_y`."""


def plain(identifier: str) -> str:
    """Write an id without leading zeros, so that R7 and R07 are the same report."""
    match = _ID.match(identifier)
    if not match:
        raise ValueError(f"'{identifier}' is no id; expected something like FR-2, E5, I8 or R17")
    return "".join(match.groups())


def entries(page: str, root: Path = ROOT) -> dict[str, str]:
    """Read the ids a reference page defines, with what each says."""
    return {plain(name): text for name, text in _ENTRY.findall((root / page).read_text())}


def _marked(decorators: Sequence[ast.expr], where: str) -> Iterator[str]:
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.proves":
            for argument in decorator.args:
                # Whatever is not a string written out is no id, and `plain` says so.
                yield plain(str(getattr(argument, "value", f"{where}: {ast.unparse(argument)}")))


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]:
            return list(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return []


def _tests(body: Sequence[ast.stmt], path: str, outer: Sequence[ast.expr] = ()) -> Iterator[tuple[str, list[ast.expr]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{path}::{node.name}", [*outer, *node.decorator_list])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield f"{path}::{node.name}", [*outer, *node.decorator_list]
    # A Hypothesis state machine is exposed as `TestX = Machine.TestCase`; mark its module or its class.
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            machine = ast.unparse(node.value).removesuffix(".TestCase")
            own = next((n.decorator_list for n in body if isinstance(n, ast.ClassDef) and n.name == machine), [])
            yield f"{path}::{ast.unparse(node.targets[0])}", [*outer, *own]


def proofs(root: Path = ROOT) -> Proofs:
    """Read every test below tests/ and collect what it says it proves."""
    found: dict[str, set[str]] = {}
    for file in sorted((root / "tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text(), filename=str(file))
        for test, marks in _tests(tree.body, file.relative_to(root).as_posix(), _module_marks(tree)):
            for identifier in _marked(marks, test):
                found.setdefault(identifier, set()).add(test)
    return {identifier: sorted(tests) for identifier, tests in sorted(found.items())}


def faults(proved: Proofs, must: Mapping[str, str], may: Mapping[str, str], gaps: Mapping[str, str]) -> list[str]:
    """Name what is wrong with the trace: unproved without a reason, closed gaps, ids that nobody defined."""
    unproved = [f"{name} has no test and no reason in tests/gaps.py" for name in must if name not in {*proved, *gaps}]
    closed = [f"{name} is proved now: take it out of tests/gaps.py" for name in gaps if name in proved]
    unknown = [
        f"{name} is defined nowhere; see {tests[0]}" for name, tests in proved.items() if name not in {*must, *may}
    ]
    stray = [f"{name} in tests/gaps.py is defined nowhere" for name in gaps if name not in must]
    return [*unproved, *closed, *unknown, *stray]


def all_faults(root: Path = ROOT) -> list[str]:
    """Name the faults of this repository's trace."""
    must, may = (
        {name: text for page in pages for name, text in entries(page, root).items()}
        for pages in (MUST_BE_PROVED, MAY_BE_PROVED)
    )
    return faults(proofs(root), must, may, GAPS)


def _short(text: str) -> str:
    """Cut what an id says to its first clause; the whole stands in the reference."""
    first = re.split(r"(?<=[^.])(?:[.;:](?= |$))", re.sub(r"^\*\([^)]*\)\* ", "", text))[0]
    return first.replace("|", "\\|")


def _rows(title: str, defined: Mapping[str, str], proved: Proofs) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| id | says | tests |", "| --- | --- | --- |")
    for name, text in defined.items():
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in proved.get(name, ()))
        yield f"| {name} | {_short(text)} | {tests or '*none yet*'} |"


def render(proved: Proofs, root: Path = ROOT) -> str:
    """Write the page."""
    requirements, protocol, reports, rows = (entries(page, root) for page in (*MUST_BE_PROVED, *MAY_BE_PROVED))
    must = {**requirements, **protocol}
    covered = sum(name in proved for name in must)
    lines = [
        "# Traceability",
        "",
        "Generated by `make traceability` from the `proves` markers of the tests; do not edit.",
        f"{covered} of {len(must)} requirements, rules and invariants are proved by a test, and"
        f" {sum(name in proved for name in reports)} of {len(reports)} reports have a test that keeps us out of them.",
        *_rows("[Requirements](reference/requirements.md)", requirements, proved),
        *_rows("[Protocol rules and invariants](reference/protocol.md)", protocol, proved),
        *_rows(
            "[Reports](reference/reports.md) with a test", {k: v for k, v in reports.items() if k in proved}, proved
        ),
        *_rows(
            "[Recovery rows and kinds of tests](reference/recovery.md) with a test",
            {k: v for k, v in rows.items() if k in proved},
            proved,
        ),
        "",
        "## Known gaps",
        "",
    ]
    open_gaps = {name: reason for name, reason in GAPS.items() if name not in proved}
    lines += [f"- **{name}**: {reason}" for name, reason in open_gaps.items()] or ["None."]
    return "\n".join(lines) + "\n"


def without_closed_gaps(source: str, proved: Proofs) -> str:
    """Drop the lines of tests/gaps.py whose id is proved now; opening a gap takes a person and a reason."""
    kept = (line for line in source.splitlines(keepends=True) if not _closed(line, proved))
    return "".join(kept)


def _closed(line: str, proved: Proofs) -> bool:
    match = re.match(r'    "([^"]+)": ', line)
    return match is not None and match[1] in proved


def main() -> int:
    """Write the page, drop closed gaps, then print what is wrong with the trace; exit 1 if anything is."""
    proved = proofs()
    (ROOT / PAGE).write_text(render(proved))
    gaps = ROOT / "tests/gaps.py"
    gaps.write_text(without_closed_gaps(gaps.read_text(), proved))
    found = [fault for fault in all_faults() if "take it out" not in fault]
    for fault in found:
        print(fault)
    print(f"traceability: {PAGE} written, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
