"""Logs: structlog to stderr, console or JSON; every known secret is scrubbed before a line is written."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import structlog
from structlog.typing import EventDict, WrappedLogger

from journal.logs import console

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Stderr:
    """Writes to whatever standard error is at that moment: a logger outlives a stream that is put in its place."""

    def __init__(self, *args: object) -> None:
        del args  # the logger's name, which its events carry already

    def msg(self, message: str) -> None:
        sys.stderr.write(message + "\n")
        sys.stderr.flush()

    log = debug = info = warning = error = critical = exception = fatal = msg


def configure_logs(level: str = "warning", form: str = "console", secrets: Sequence[str] = ()) -> None:
    """
    Set structlog up for this process; called once by whoever composes it.

    Args:
        level: debug, info, warning or error.
        form: console (for people) or json (one object a line).
        secrets: Texts that must not appear in any line.
    """
    hidden = sorted((s for s in secrets if s), key=len, reverse=True)

    def scrub(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        del logger, name
        for key, value in event.items():
            if isinstance(value, str):
                for secret in hidden:
                    value = value.replace(secret, "[redacted]")
                event[key] = value
        return event

    renderer = structlog.processors.JSONRenderer() if form == "json" else console()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # before the scrubbing: a message may quote what it was given
            scrub,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_Stderr,
        cache_logger_on_first_use=True,
    )
