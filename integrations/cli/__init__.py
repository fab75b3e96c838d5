"""The command line: `journal` (CONTRACT "CLI"). Imports what a command needs inside that command."""

from integrations.cli.app import main

__all__ = ["main"]
