"""
The `journal` command: its options, its commands, and what becomes of errors.

Global options stand before or after the command's name. Nothing heavy is imported here, so that `journal inspect` is
quick even where the service's libraries are slow to load.
"""

from __future__ import annotations

import copy
import inspect as introspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from integrations.cli.given import Given
from journal.errors import JournalError

GLOBAL = ("config", "db", "json", "no_color")

COMMANDS = {
    "init": "init:init",
    "serve": "serve:serve",
    "demo": "demo:demo",
    "open": "tasks:open_task",
    "advance": "tasks:advance",
    "release": "tasks:release",
    "pause": "verbs:pause",
    "resume": "verbs:resume",
    "retry": "verbs:retry",
    "cancel": "verbs:cancel",
    "reopen": "verbs:reopen",
    "settle": "verbs:settle",
    "queue": "queue:queue",
    "inspect": "inspect:inspect",
    "explain": "inspect:explain",
    "log": "log:log",
    "verify": "verify:verify",
    "recover": "recover:recover",
    "export": "export:export",
    "import": "export:import_file",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "prove": "prove:prove",
    "projections": "projections:projections",
    "hosts": "hosts:hosts",
    "doctor": "doctor:doctor",
}
"""Name: module and function, in the order in which `journal --help` lists them."""

COMPLETING = "_JOURNAL_COMPLETE"
"""Set by a shell that asks for completions: source_bash, source_zsh, source_fish, then complete_*."""

app = typer.Typer(
    name="journal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # ids from outside stand in usage errors; nothing of them may be read as markup
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        with suppress(PackageNotFoundError):
            typer.echo(f"journal {version('transition-journal')}")
            raise typer.Exit
        typer.echo("journal (not installed)")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="Configuration; journal.toml by default, then built-in defaults.")
    ] = None,
    db: Annotated[Path | None, typer.Option("--db", help="The journal's database file; wins over the rest.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, also on a terminal.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """
    Write-ahead journal of delivery transitions: one actor drives a task, no effect happens twice or is forgotten.

    journal demo                          see it survive a SIGKILL in the middle of a merge
    journal init && journal serve         begin
    journal open ORCH-1 --repo acme/widgets --branch feature/one
    journal inspect ORCH-1                what happened, offline and read-only
    journal explain ORCH-1                why it is where it is

    Exit codes: 0 yes, 1 the answer is no, 2 bad usage or configuration, 3 deferred, waiting or lost the race,
    4 storage or service unavailable.
    """
    del version
    ctx.obj = Given(config, db, json, not no_color and "NO_COLOR" not in os.environ)


def _help(function: Callable[..., Any]) -> str:
    """The docstring, with the paragraphs of examples kept as they are written."""
    paragraphs = introspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(f"\b\n{p}" if p.startswith("journal ") else p for p in paragraphs)


def build(argv: Sequence[str]) -> Any:
    """The command with the subcommands that are named among the arguments, or with all of them if none is."""
    app.registered_commands.clear()
    for name in [name for name in COMMANDS if name in argv] or COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        command = getattr(import_module(f"integrations.cli.{module}"), function)
        app.command(name, help=_help(command))(command)
    group: Any = typer.main.get_command(app)
    group.help = _help(root)
    shared = [p for p in group.params if p.name in GLOBAL]
    for sub in group.commands.values():
        own = {p.name for p in sub.params}
        sub.params.extend(_again(p) for p in shared if p.name not in own)
    return group


def _again(option: Any) -> Any:
    """A global option for a subcommand: not shown in its help, not passed to it, kept with those given before."""
    again = copy.copy(option)
    again.expose_value, again.hidden, again.callback = False, True, _keep
    return again


def _keep(ctx: Any, param: Any, value: Any) -> Any:
    given = ctx.find_root().obj
    if value and isinstance(given, Given):
        if param.name == "no_color":
            given.color = False
        else:
            setattr(given, param.name, Path(value) if param.name in ("config", "db") else value)
    return value


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every ending is an exit code, and no error is a traceback."""
    from integrations.cli.exits import BROKEN, of_error
    from integrations.cli.output import complain

    given = sys.argv[1:] if argv is None else argv
    debug = os.environ.get("JOURNAL_DEBUG") == "1"
    if COMPLETING in os.environ:  # without the two options of typer's own, which would stand in every help
        from typer.completion import completion_init  # type: ignore[attr-defined]  # its own main calls it, too

        completion_init()
    try:
        build(given)(args=given, prog_name="journal")
    except JournalError as error:
        if debug:
            raise
        complain(str(error))
        sys.exit(of_error(error))
    except Exception as error:
        if debug:
            raise
        complain(f"{type(error).__name__}: {error}; this is a bug, JOURNAL_DEBUG=1 prints where")
        sys.exit(BROKEN)
