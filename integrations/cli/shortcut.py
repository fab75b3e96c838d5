"""
The short way for the question that is asked in a hurry: `journal inspect TASK`, plainly put.

Building any command makes typer load pydantic, which takes longer than the audit itself. So a command line of exactly
this form goes straight to it; whatever else is on it, help and mistakes too, takes the usual way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from integrations.cli.given import Given


def plain_inspect(argv: Sequence[str]) -> tuple[Given, str] | None:
    """The options and the task of `[--db PATH] [--json] [--no-color] inspect TASK`, in any order; else None."""
    options, words, rest = Given(color="NO_COLOR" not in os.environ), list[str](), iter(argv)
    for word in rest:
        if word == "--db":
            value = next(rest, "")
            if not value or value.startswith("-") or options.db is not None:
                return None
            options.db = Path(value)
        elif word == "--json":
            options.json = True
        elif word == "--no-color":
            options.color = False
        elif word.startswith("-"):
            return None
        else:
            words.append(word)
    return (options, words[1]) if len(words) == 2 and words[0] == "inspect" else None


def answered(argv: Sequence[str]) -> int | None:
    """Answer if the question is of the plain form: the exit code, or None for the usual way."""
    if os.environ.get("JOURNAL_DEBUG") == "1" or (plain := plain_inspect(argv)) is None:
        return None
    from integrations.cli.audit import tell
    from integrations.cli.exits import of_error
    from journal.errors import JournalError

    try:
        return tell(*plain)
    except JournalError as error:
        from integrations.cli.output import complain

        complain(str(error))
        return of_error(error)
