"""
The never-raise promise of the public ownership functions (FR-7, NFR-1): one decorator, nowhere else.

It alone may catch `Exception`: it logs a warning and answers `Unavailable`. Cancellation passes through. Claiming reads
`Unavailable` as "go on", an irreversible step as "stop".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from journal.errors import CallerError, JournalError
from journal.results import Refused, Unavailable

logger = structlog.get_logger(__name__)

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


def never_raises(
    function: Callable[Concatenate[S, str, P], Awaitable[R]],
) -> Callable[Concatenate[S, str, P], Coroutine[Any, Any, R | Refused | Unavailable]]:
    """Turn what a coroutine function (self, task, ...) raises into `Refused` (the caller's) or `Unavailable` (ours)."""
    name = function.__name__

    async def guarded(self: S, task: str, /, *args: P.args, **kwargs: P.kwargs) -> R | Refused | Unavailable:
        try:
            return await function(self, task, *args, **kwargs)
        except CallerError as error:
            logger.warning("call_refused", call=name, task=task, error=str(error))
            return Refused(task, str(error))
        except JournalError as error:
            logger.warning("journal_unavailable", call=name, task=task, error=str(error))
            return Unavailable(task, str(error))
        except Exception as error:
            logger.warning("journal_unavailable", call=name, task=task, exc_info=True)
            return Unavailable(task, f"{type(error).__name__}: {error}")

    update_wrapper(guarded, function)
    return guarded
