"""The documentation says what the program does: generated pages are up to date, commands and snippets are real."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from integrations.alerts.config import AlertsConfig
from integrations.cli import app as cli
from integrations.command.config import CommandConfig
from integrations.sections import FileSettings
from integrations.settings import Environment, Settings
from integrations.wiring import build
from journal.codec import BODIES
from journal.journal import Journal, NewTask
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.results import Advanced
from journal.words import Guard
from tests import reference

ROOT = reference.ROOT
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TOLD = [p for p in PAGES if not p.is_relative_to(ROOT / "docs" / "decisions") and p.name != "traceability.md"]


@cache
def generated() -> dict[str, str]:
    return reference.pages()


@pytest.mark.parametrize("page", ["events", "errors", "commands", "settings", "http", "metrics"])
def test_a_generated_page_is_what_the_program_says_today(page: str) -> None:
    path = f"docs/reference/{page}.md"
    assert (ROOT / path).read_text() == generated()[path], "run `make docs`"


def test_nothing_is_missing_from_the_reference() -> None:
    made = generated()
    for kind in BODIES:
        assert f"## `{kind.value}`" in made["docs/reference/events.md"]
    for command in cli.COMMANDS:
        assert f"## `journal {command}" in made["docs/reference/commands.md"]
    for route in ("GET /queue", "POST /tasks/{task}/settle", "GET /events", "GET /task/{task}", "GET /metrics"):
        assert f"`{route}`" in made["docs/reference/http.md"]
    for name in ("ORCH_OPERATOR_TOKEN", "ORCH_TRANSITION_JOURNAL_REPOS", "reaper_finalize_grace_s"):
        assert f"`{name}`" in made["docs/reference/settings.md"]
    assert "`UnknownEventError`" in made["docs/reference/errors.md"]


def test_every_invariant_that_is_checked_and_every_view_for_auditors_is_described() -> None:
    folder = ROOT / "docs" / "reference"
    checked = set(re.findall(r'"(I\d+)"', (ROOT / "recovery" / "invariants.py").read_text()))
    checked |= set(re.findall(r'"(I\d+)"', (ROOT / "recovery" / "verify.py").read_text()))
    described = set(re.findall(r"^- \*\*(I\d+)\*\*", (folder / "protocol.md").read_text(), re.MULTILINE))
    assert len(checked) > 20
    assert checked <= described
    views = set(re.findall(r"CREATE TEMP VIEW (\w+)", (folder / "invariants.sql").read_text()))
    assert views == set(re.findall(r"^\| `(\w+)` \|", (folder / "invariants.md").read_text(), re.MULTILINE))


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in TOLD:
        for text in re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            yield str(page.relative_to(ROOT)), text


def calls() -> Iterator[tuple[str, str]]:
    """Every `journal ...` that a reader is told to type."""
    for page, text in blocks("sh"):
        for line in text.splitlines():
            for call in re.findall(r"(?:^|[|&;(]|\bthen|\bdo|\buntil)\s*journal\s+([^|&;)]*)", line.split(" #")[0]):
                yield page, call
    for path in TOLD:
        prose = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        for call in re.findall(r"`journal ([^`]+)`", prose):
            yield str(path.relative_to(ROOT)), call


def test_every_command_and_option_that_is_told_exists() -> None:
    group: Any = cli.build([])
    options = {o for p in group.params for o in p.opts} | {"--help"}
    wrong = []
    for page, call in calls():
        words = call.replace("'", "").replace('"', "").split()
        named = (w for i, w in enumerate(words) if not w.startswith("-") and words[i - 1] not in ("--config", "--db"))
        name = next(named, "")
        known = (
            options | {o for p in group.commands[name].params for o in p.opts} if name in group.commands else options
        )
        wrong += [f"{page}: journal {call}: {w}" for w in words if w.startswith("--") and w.split("=")[0] not in known]
        if name and name not in group.commands and re.fullmatch(r"[a-z]+", name):
            wrong.append(f"{page}: journal {call}: no such command '{name}'")
    assert wrong == []


def test_every_rehearsal_that_a_page_tells_to_run_is_a_test() -> None:
    tests = {
        path: [path.stem, *re.findall(r"def (test_\w+)", path.read_text("utf-8"))]
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    wrong, seen = [], 0
    for page in TOLD:
        for folder, word in re.findall(r'make test-(\w+) ARGS="-k (\w+)', page.read_text("utf-8")):
            seen += 1
            where = [names for path, names in tests.items() if folder in ("long", path.parent.name)]
            if not any(word in name for names in where for name in names):
                wrong.append(f"{page.relative_to(ROOT)}: no test of tests/{folder} is called {word}")
    assert wrong == []
    assert seen > 10


def test_every_request_that_is_told_has_a_route_with_those_parameters() -> None:
    document = reference.application().openapi()["paths"]
    known = {
        (method.upper(), re.sub(r"{\w+}", "*", path)): {p["name"] for p in route.get("parameters", ())}
        for path, methods in document.items() for method, route in methods.items()
    }  # fmt: skip
    for route in reference._routes(reference.application()):
        for method in route.methods:
            given = {p.alias for p in route.dependant.query_params}
            known.setdefault((method, re.sub(r"{\w+}", "*", route.path)), given)
    wrong, seen = [], 0
    for page in (p for p in TOLD if p.parent.name != "reference"):
        for method, path, query in re.findall(r"\b(GET|POST) (/[\w/.-]*)(?:\?([^\s`]*))?", page.read_text("utf-8")):
            matching = [
                parameters for (verb, route), parameters in known.items()
                if verb == method and re.fullmatch(re.escape(route).replace(r"\*", "[^/]+"), path)
            ]  # fmt: skip
            named = set(re.findall(r"(?:^|&)(\w+)=", query))
            seen += 1
            if not any(named <= parameters for parameters in matching):
                wrong.append(f"{page.relative_to(ROOT)}: {method} {path}?{query}")
    assert wrong == []
    assert seen >= 8


def test_every_snippet_of_configuration_is_accepted() -> None:
    seen = 0
    for _, text in blocks("toml"):
        data = tomllib.loads(text)
        for step in data.get("steps", {}).values():
            if step.get("use") == "command":
                fields = {k: v for k, v in step.items() if k in CommandConfig.model_fields}
                CommandConfig.model_validate(fields)
                seen += 1
        if "alerts" in data.get("integrations", {}):
            AlertsConfig.model_validate(data["integrations"]["alerts"])
            seen += 1
    assert seen >= 3


def test_every_snippet_of_a_journal_toml_builds_a_service(tmp_path: Path) -> None:
    """A snippet stands among what is built in; one that shows a whole pipeline stands for itself."""
    built_in = FileSettings()
    pages = set()
    for page, text in blocks("toml"):
        data = tomllib.loads(text)
        if "stages" not in data.get("pipeline", {}):
            shown = {edge["from"]: edge for edge in data.get("pipeline", {}).get("edges", ())}
            edges = [shown.get(e.source, e.model_dump(by_alias=True)) for e in built_in.pipeline.edges]
            data["pipeline"] = data.get("pipeline", {}) | {"edges": edges}
            data |= {name: getattr(built_in, name) | data.get(name, {}) for name in ("steps", "gates")}
        values = FileSettings.model_validate(data)
        build(Settings(file=tmp_path / "journal.toml", base=tmp_path, values=values, environment=Environment()))
        pages.add(page)
    assert len(pages) >= 7


async def test_the_snippet_of_the_readme_works_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = [text for page, text in blocks("python") if page == "README.md"]
    pipeline = Pipeline(("deploy-staging", "deploy"), (Edge("deploy-staging", "deploy"),), {})
    async with Journal.open("orchestrator.db", pipeline=pipeline, steps={}) as opened:
        await opened.open_task(NewTask("ORCH-114", "acme/widgets", "feature/one"), actor="tracker")
    space: dict[str, Any] = {"pipeline": pipeline, "steps": {}}
    code = compile(text, "README", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, space)  # noqa: S307  (the page's own code, as a reader would run it)
    assert isinstance(space["result"], Advanced)


async def test_the_step_of_the_how_to_works_as_it_is_written(tmp_path: Path) -> None:
    (text,) = [text for page, text in blocks("python") if page == "docs/how-to/write-a-step-with-a-probe.md"]
    space: dict[str, Any] = {"__name__": "written"}
    exec(compile(text, "how-to", "exec"), space)  # noqa: S102  (the page's own code, as a reader would run it)
    step = space["Publish"]()
    pipeline = Pipeline(
        ("review", "done"),
        (Edge("review", "done", ("publish",)),),
        {"publish": StepDefinition(StepPlan("publish", Guard.EXCLUSIVE))},
    )
    async with Journal.open(tmp_path / "journal.db", pipeline=pipeline, steps={"publish": step}) as opened:
        await opened.open_task(NewTask("T-1", "acme/widgets", "feature/one"), actor="tracker")
        assert isinstance(await opened.advance("T-1"), Advanced)
    assert step.world == {"T-1/1/publish": "(1, 1)"}


def test_the_dashboard_asks_only_for_figures_that_exist() -> None:
    known = set(re.findall(r"^\| `(journal_\w+)`", generated()["docs/reference/metrics.md"], re.MULTILINE))
    known |= {f"{name}_{part}" for name in known for part in ("sum", "count")}
    for file in ("grafana.json", "alerts.yml"):
        text = (ROOT / "docs" / "deploy" / file).read_text("utf-8")
        asked = set(re.findall(r"\bjournal_[a-z_]+", text))
        assert asked, file
        assert asked <= known, file
    assert len(json.loads((ROOT / "docs" / "deploy" / "grafana.json").read_text("utf-8"))["panels"]) >= 10


def test_the_script_that_checks_an_export_stays_short_enough_to_be_read() -> None:
    lines = (ROOT / "docs" / "how-to" / "verify_export.py").read_text("utf-8").splitlines()
    assert len(lines) <= 62
    imports = {line.split()[1] for line in lines if line.startswith("import ")}
    assert imports == {"hashlib", "json", "sys"}
