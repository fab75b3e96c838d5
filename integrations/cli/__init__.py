"""The command line: `journal` (CONTRACT "CLI"). Imports what a command needs inside that command."""

from __future__ import annotations

import gc
import sys

__all__ = ["collect_seldom", "main"]


def collect_seldom() -> None:
    """
    Let the collector of cycles look a hundred times less often than it does by itself, in this whole process.

    Loading makes a hundred thousand objects that all stay, and events, streams and runs go by their count of
    references: looking through them again and again is a tenth of the time until an answer, an eighth of a transition.
    """
    gc.set_threshold(100_000, 20, 20)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every ending is an exit code, and no error is a traceback."""
    collect_seldom()
    from integrations.cli.shortcut import answered

    given = sys.argv[1:] if argv is None else argv
    if (code := answered(given)) is not None:
        sys.exit(code)
    from integrations.cli.app import main as run

    run(given)
