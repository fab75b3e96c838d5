"""Lines of the log where nobody set structlog up: as it is by itself, but tracebacks show no values."""

from __future__ import annotations

import sys

import structlog


def leave_values_out() -> None:
    """
    Configure structlog if nobody did.

    By itself it prints the locals of every frame of a traceback: secrets among them, and large ones take their time.
    Whoever configures it, before or after, has the last word.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                console(),
            ]
        )


def console() -> structlog.dev.ConsoleRenderer:
    """Lines for people, with the traceback as Python writes it."""
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
