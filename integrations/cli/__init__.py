"""The command line: `journal` (CONTRACT "CLI"). Imports what a command needs inside that command."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every ending is an exit code, and no error is a traceback."""
    # Loading makes a hundred thousand objects that all stay; looking through them for garbage again and again is a
    # tenth of the time until an answer.
    gc.set_threshold(100_000, 20, 20)
    from integrations.cli.shortcut import answered

    given = sys.argv[1:] if argv is None else argv
    if (code := answered(given)) is not None:
        sys.exit(code)
    from integrations.cli.app import main as run

    run(given)
