"""The repository itself: its top level, its packages, its pages, its trace."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import links, traceability
from tests.conftest import Counts, need_tool
from tests.wheel import PACKAGES, WheelFaultError, check_contents

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = PACKAGES | {"tests", "docs", "pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"}
# Written so that this file does not match itself.
FORBIDDEN = {
    "a registry's host": re.compile(
        r"pypi[.]org|pythonhosted[.]org|npmjs[.](?:org|com)|crates[.]io|docker[.]io|ghcr[.]io|quay[.]io", re.IGNORECASE
    ),
    "a path of one machine": re.compile(r"/(?:work|root|Users)/[a-z]|/home/[a-z]|/opt/(?:wheels|pypi)"),
    "a value that looks like a secret": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY|gh[pousr]_[A-Za-z0-9]{20}|AKIA[A-Z0-9]{16}"
    ),
}


def tracked() -> list[Path]:
    """Name the files git would commit; asks git, so that what is ignored does not count."""
    git = need_tool("git")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git repository: what is tracked cannot be told")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.proves("DC-5")
def test_the_top_level_is_the_agreed_list() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {top for top in tops if not top.startswith(".")} == TOP_LEVEL
    assert {top for top in tops if top.startswith(".")} <= {".ci", ".gitignore"}


@pytest.mark.proves("DC-5")
def test_the_packages_of_the_outline_are_the_ones_in_use() -> None:
    named = {re.split(r"[<>=~\[]", line)[0] for line in project()["project"]["dependencies"]}
    named |= {re.split(r"[<>=~\[]", line)[0] for line in project()["dependency-groups"]["test"]}
    assert named >= {"pydantic", "aiosqlite", "structlog", "fastapi", "uvicorn", "hypothesis", "pytest"}


def test_no_file_names_a_registry_a_machine_or_a_secret() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {what}: {match[0]}"
        for path in tracked()
        for what, pattern in FORBIDDEN.items()
        if (match := pattern.search(path.read_bytes().decode("utf-8", "replace")))
    ]
    assert not found, "\n".join(found)


def test_every_package_says_that_it_is_typed() -> None:
    assert [package for package in sorted(PACKAGES) if not (ROOT / package / "py.typed").is_file()] == []


def test_the_wheel_is_told_to_hold_exactly_the_four_packages() -> None:
    assert set(project()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == PACKAGES
    assert "Private :: Do Not Upload" in project()["project"]["classifiers"]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ({"journal/py.typed"}, "instead of"),
        ({f"{package}/py.typed" for package in PACKAGES} | {"tests/__init__.py"}, "instead of"),
        ({f"{package}/__init__.py" for package in PACKAGES}, r"py\.typed"),
    ],
    ids=["one is missing", "one too many", "untyped"],
)
def test_a_wheel_that_holds_something_else_is_refused(names: set[str], fault: str) -> None:
    with pytest.raises(WheelFaultError, match=fault):
        check_contents(names)


def test_every_dependency_is_pinned_to_one_version() -> None:
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.!+]+", line)] == []
    pinned = {canonical(line.split("==")[0]) for line in lines}
    about = project()
    extras = about["project"]["optional-dependencies"].values()
    groups = about["dependency-groups"].values()
    wanted = [*about["project"]["dependencies"], *(line for lines in (*extras, *groups) for line in lines)]
    assert {canonical(re.split(r"[<>=~\[]", line)[0]) for line in wanted} <= pinned


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_target_of_the_makefile_that_the_contract_names_is_there() -> None:
    made = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    promised = "run test setup serve lint types fmt bench docs help test-long prove-ourselves screenshots wheel-check"
    assert set(promised.split()) <= made


def test_every_link_of_the_documentation_resolves_and_every_page_is_reachable() -> None:
    assert links.faults(ROOT) == []


def test_a_broken_link_a_missing_heading_and_a_lost_page_are_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# A b\n[gone](gone.md) [no](#c) [yes](#a-b) `[code](x.md)`\n")
    (tmp_path / "docs/lost.md").write_text("# Lost\n")
    assert links.faults(tmp_path) == [
        "docs/index.md: gone.md: no such file",
        "docs/index.md: #c: no such heading",
        "docs/lost.md: no link from docs/index.md leads here",
    ]


def test_every_requirement_rule_and_invariant_has_a_test_or_a_reason() -> None:
    assert traceability.all_faults() == [], "run `make traceability`"


def test_the_traceability_page_is_up_to_date() -> None:
    assert (ROOT / traceability.PAGE).read_text() == traceability.render(traceability.proofs()), (
        "run `make traceability`"
    )


def test_the_trace_names_what_is_unproved_closed_and_unknown() -> None:
    proved = {"E5": ["tests/unit/test_a.py::test_b"], "X9": ["tests/unit/test_a.py::test_c"]}
    assert traceability.faults(proved, {"E5": "", "E6": "", "E7": ""}, {}, {"E5": "not yet", "E7": "not yet"}) == [
        "E6 has no test and no reason in tests/gaps.py",
        "E5 is proved now: take it out of tests/gaps.py",
        "X9 is defined nowhere; see tests/unit/test_a.py::test_c",
    ]
    assert traceability.without_closed_gaps('GAPS = {\n    "E5": "x",\n    "E7": "x",\n}\n', proved) == (
        'GAPS = {\n    "E7": "x",\n}\n'
    )


def test_marks_are_found_on_tests_classes_modules_and_state_machines(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text(
        "pytestmark = pytest.mark.proves('R07')\n"
        "@pytest.mark.proves('E1')\nclass TestA:\n    @pytest.mark.proves('E2', 'E3')\n"
        "    async def test_b(self): ...\n"
        "@pytest.mark.proves('E4')\nclass Machine: ...\nTestMachine = Machine.TestCase\n"
    )
    inside, machine = "tests/test_x.py::TestA::test_b", "tests/test_x.py::TestMachine"
    assert traceability.proofs(tmp_path) == {
        "E1": [inside],
        "E2": [inside],
        "E3": [inside],
        "E4": [machine],
        "R7": [inside, machine],
    }


def test_counts_grow_with_long_and_stay_bounded(counts: Counts) -> None:
    assert counts.of(20) == 20 * counts.factor
    assert Counts(200).of(20, most=100) == 100


def test_a_missing_tool_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool is missing"):
        need_tool("no-such-tool")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is missing"):
        need_tool("no-such-tool")
