"""
The reference pages that are read from the program itself, so that nothing can be missing or out of date (`make docs`).

Docstrings, models and help texts are the source; a test compares the pages with what this writes.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from integrations import settings
from integrations.cli import app as cli
from integrations.cli import exits
from integrations.http import metrics, problems
from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.sections import FileSettings
from journal import errors, events
from journal.clock import SystemClock
from journal.codec import BODIES

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "docs/reference"
NOTE = "Read from the program by `make docs`; a test fails when it is out of date.\n"


def pages() -> dict[str, str]:
    """Every generated page by its path."""
    made = {
        "events": events_page(),
        "errors": errors_page(),
        "commands": commands_page(),
        "settings": settings_page(),
        "http": http_page(),
        "metrics": metrics_page(),
    }
    return {f"{FOLDER}/{name}.md": text for name, text in made.items()}


def doc(thing: object) -> str:
    """A docstring as one paragraph of a page."""
    return " ".join((inspect.getdoc(thing) or "").split())


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; bars within cells are escaped."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def type_name(hint: object) -> str:
    """A type as a reader writes it."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return re.sub(r"\b(?:typing|pathlib|collections\.abc|journal\.\w+|integrations(?:\.\w+)+)\.", "", str(hint))


# -- events -----------------------------------------------------------------------------------------------------------


def events_page() -> str:
    """Kinds and their bodies."""
    parts = [
        "# Events\n\n"
        + NOTE
        + "\nThe columns of `journal_events` are the same for every kind: `position, task, version, "
        "generation, epoch, kind, schema, step, attempt, key, actor, body, body_hash, at, prev_hash, hash`; `at` in "
        "microseconds since 1970, UTC. A field of the body that has its default is not stored.\n"
    ]
    for kind, body in BODIES.items():
        parts.append(f"\n## `{kind.value}`\n\n{doc(body)}\n")
        hints = typing.get_type_hints(body, vars(events))
        rows = [
            (f"`{f.name}`", f"`{type_name(hints[f.name])}`", "" if f.default is MISSING else f"`{_default(f.default)}`")
            for f in fields(body)
        ]
        if rows:
            parts.append("\n" + table(("field", "type", "default"), rows))
    return "".join(parts)


def _default(value: object) -> str:
    return repr(getattr(value, "value", value)) if not isinstance(value, tuple) else "()"


# -- errors and results -----------------------------------------------------------------------------------------------


def errors_page() -> str:
    """Exceptions and results, with the exit code and the HTTP answer of each."""
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2]
    raised = [
        (f"`{e.__name__}`", doc(e), str(exits.of_error(_made(e))), _problem(e))
        for e in _subclasses(errors.JournalError)
        if e.__module__ == "journal.errors" and e.__init__ is not errors.JournalError.__init__
    ]
    ended = [
        (f"`{r.__name__}`", doc(r), str(code), " ".join(map(str, problems.RESULTS[r])))
        for r, code in exits.RESULTS.items()
    ]
    return (
        f"# Errors, results, exit codes\n\n{NOTE}\nAn expected refusal is a result; an exception is a caller's bug "
        f"or a broken world.\n\n```text\n{tree}\n```\n\n## Exceptions\n\n"
        + table(("exception", "means", "exit code", "HTTP"), raised)
        + "\n## Results\n\n"
        + table(("result", "means", "exit code", "HTTP"), ended)
    )


def _subclasses(parent: type[errors.JournalError]) -> Iterator[type[errors.JournalError]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _made(error: type[errors.JournalError]) -> errors.JournalError:
    return error.__new__(error)


def _problem(error: type[errors.JournalError]) -> str:
    return next((f"{status} {slug}" for kind, status, slug in problems.ERRORS if issubclass(error, kind)), "500 bug")


# -- commands ---------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments and options."""
    group = cli.build([])
    parts = [f"# Commands\n\n{NOTE}\n{_help(group.help)}\n\n## Global options\n\n", _options(group)]
    parts.append("\nThey stand before or after the command's name.\n")
    for name in cli.COMMANDS:
        command = group.commands[name]
        arguments = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
        parts.append(f"\n## `journal {name}{' ' if arguments else ''}{arguments}`\n\n{_help(command.help)}\n")
        if any(_shown(p) for p in command.params):
            parts.append("\n" + _options(command))
    return "".join(parts)


def _help(text: str | None) -> str:
    """Paragraphs; examples become blocks."""
    made = []
    for paragraph in (text or "").split("\n\n"):
        if paragraph.startswith("\b"):
            made.append("```sh\n" + paragraph.lstrip("\b\n") + "\n```")
        else:
            made.append(" ".join(paragraph.split()))
    return "\n\n".join(made)


def _shown(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.hidden


def _argument(argument: Any) -> str:
    shown = (argument.name or "").upper()
    return shown if argument.required else f"[{shown}]"


def _options(command: Any) -> str:
    rows = []
    for option in command.params:
        if _shown(option):
            names = ", ".join(f"`{o}`" for o in [*option.opts, *option.secondary_opts])
            choices = getattr(getattr(option, "type", None), "choices", ())
            takes = ", ".join(f"`{getattr(c, 'value', c)}`" for c in choices)
            rows.append((names, (option.help or "") + (f" One of {takes}." if takes else "")))
    return table(("option", "means"), rows)


# -- settings ---------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """`journal.toml` and the environment."""
    columns = ("key", "type", "default", "means")
    parts = [
        f"# Settings\n\n{NOTE}\n`journal init` writes a commented `journal.toml`. Unknown keys, unreachable stages and "
        "budgets that cannot hold are refused at load, with file, key and remedy.\n"
    ]
    for where, model in _sections("", FileSettings):
        plain = {name: f for name, f in model.model_fields.items() if _model_of(f.annotation) is None}
        if plain:
            parts.append(f"\n## `{where or 'top level'}`\n\n{doc(model)}\n\n")
            parts.append(table(columns, [_setting(model, name, f.alias or name) for name, f in plain.items()]))
    variables = settings.Environment
    rows = [_setting(variables, name, f"ORCH_{name.upper()}") for name in variables.model_fields]
    return "".join([*parts, f"\n## Environment\n\n{doc(variables)}\n\n", table(columns, rows)])


def _setting(model: type[BaseModel], name: str, shown: str) -> tuple[str, ...]:
    field = model.model_fields[name]
    means = field.description or _comments(model).get(name, "")
    return f"`{shown}`", f"`{type_name(field.annotation)}`", _value(field), means


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """What stands behind each field in the source."""
    return dict(re.findall(r"^    (\w+):.*?  # (.*)$", inspect.getsource(model), re.MULTILINE))


def _sections(where: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    yield where, model
    for name, field in model.model_fields.items():
        if (inner := _model_of(field.annotation)) is not None:
            yield from _sections(f"{where}.{name}" if where else name, inner)


def _model_of(hint: object) -> type[BaseModel] | None:
    for each in (hint, *typing.get_args(hint)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
        for inner in typing.get_args(each):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                return inner
    return None


def _value(field: Any) -> str:
    if field.default is PydanticUndefined:
        return "built in" if field.default_factory is not None else "required"
    value = field.default
    return "" if value is None else f"`{value.as_posix() if isinstance(value, Path) else value!r}`"


# -- HTTP -------------------------------------------------------------------------------------------------------------


class _Nothing:
    """Stands for a service where only the routes are asked for."""

    clock = SystemClock()


def application() -> FastAPI:
    """The application, behind which nothing runs."""
    return create_app(cast("Any", _Nothing()), Tokens())


def http_page() -> str:
    """Every route: of the API with its answers, of the page with its words."""
    app = application()
    document = app.openapi()
    rows = []
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            said = " ".join(route.get("description", route["summary"]).split())
            query = ", ".join(f"`{p['name']}`" for p in route.get("parameters", ()) if p["in"] in ("query", "header"))
            rows.append((f"`{method.upper()} {path}`", said, query, " ".join(route["responses"])))
    described = set(document["paths"])
    shown = [
        (f"`{' '.join(sorted(route.methods))} {route.path}`", doc(route.endpoint))
        for route in _routes(app)
        if route.path not in described and route.path != "/openapi.json"
    ]
    return (
        f"# HTTP\n\n{NOTE}\nThe whole description is at `/openapi.json`. Errors are problem documents (RFC 9457) whose "
        f"`type` is `{problems.TYPE}` and a word of [errors](errors.md). Writing needs `Authorization: Bearer TOKEN`; "
        "`Idempotency-Key` is honoured.\n\n## API\n\n"
        + table(("route", "does", "parameters", "answers"), rows)
        + "\n## Page\n\n"
        + table(("route", "does"), shown)
    )


def _routes(app: FastAPI) -> list[Any]:
    from integrations.http import page

    return [route for route in page.router.routes if getattr(route, "methods", None)]


# -- metrics ----------------------------------------------------------------------------------------------------------


def metrics_page() -> str:
    """What `GET /metrics` tells, and an alert for each figure that a person must act on."""
    text = metrics.as_text(metrics.SAMPLE).decode()
    types_of = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    labels: dict[str, str] = {}
    for name, inside in re.findall(r"^(\w+)\{([^}]*)\}", text, re.MULTILINE):
        known = ", ".join(f"`{label}`" for label in re.findall(r"(\w+)=", inside) if label != "le")
        labels.setdefault(re.sub(r"_(bucket|sum|count)$", "", name), known)
    rows = [(f"`{name}`", types_of[name], labels.get(name, ""), helps[name]) for name in types_of]
    return f"# Metrics\n\n{NOTE}\n" + table(("name", "type", "labels", "means"), rows)


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        (ROOT / path).write_text(text)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
