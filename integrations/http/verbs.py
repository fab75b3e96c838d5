"""
The operator's verbs over HTTP: each is one event with actor and reason, and performs no effect by itself (R104, V6).

What may be said when is for the journal to decide: a verb that does not fit the task answers 409 with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from integrations.http.auth import require_token
from integrations.http.bodies import (
    CancelTask,
    PauseTask,
    ReopenTask,
    ResumeTask,
    SettleTask,
    VerbBody,
    documented,
    parse,
    read_bytes,
)
from integrations.http.context import known, service_of, writing
from integrations.http.ports import Service
from integrations.http.problems import from_result
from integrations.http.shapes import WRITING, VerbDocument, answers, refusals
from integrations.http.tasks import answers_of
from journal.journal import Journal
from journal.results import Done, Refused, Unavailable

router = APIRouter(tags=["verbs"])

Said = Done | Refused | Unavailable
ANSWERS = answers(VerbDocument) | refusals(*WRITING)

Call = Callable[[Journal, str, Any], Coroutine[Any, Any, Said]]
VERBS: dict[str, tuple[type[VerbBody], Call]] = {
    "pause": (PauseTask, lambda j, task, b: j.pause(task, reason=b.reason, actor=b.actor)),
    "resume": (ResumeTask, lambda j, task, b: j.resume(task, reason=b.reason, actor=b.actor)),
    "retry": (ResumeTask, lambda j, task, b: j.resume(task, reason=b.reason, actor=b.actor)),
    "cancel": (CancelTask, lambda j, task, b: j.cancel(task, reason=b.reason, actor=b.actor)),
    "reopen": (
        ReopenTask,
        lambda j, task, b: j.reopen(task, stage=b.stage, head=b.head, reason=b.reason, actor=b.actor),
    ),
    "settle": (
        SettleTask,
        lambda j, task, b: j.settle(task, applied=b.applied, evidence=b.evidence, reason=b.reason, actor=b.actor),
    ),
}
"""Verb: its body, and how it is put to the journal; the page's forms say the same ones."""


@router.post("/tasks/{task}/pause", responses=ANSWERS, openapi_extra=documented(PauseTask, required=True))
async def pause(request: Request, task: str) -> Response:
    """Stop a task from being driven; an attempt that is in doubt stays so until it is resumed."""
    return await _say(request, task, "pause")


@router.post("/tasks/{task}/resume", responses=ANSWERS, openapi_extra=documented(ResumeTask, required=True))
async def resume(request: Request, task: str) -> Response:
    """Let a paused or parked task be driven again."""
    return await _say(request, task, "resume")


@router.post("/tasks/{task}/retry", responses=ANSWERS, openapi_extra=documented(ResumeTask, required=True))
async def retry(request: Request, task: str) -> Response:
    """Let a parked task try again, with new attempts; the world is asked first."""
    return await _say(request, task, "retry")


@router.post("/tasks/{task}/cancel", responses=ANSWERS, openapi_extra=documented(CancelTask, required=True))
async def cancel(request: Request, task: str) -> Response:
    """End a task before its next irreversible call; what may still land is settled first."""
    return await _say(request, task, "cancel")


@router.post("/tasks/{task}/reopen", responses=ANSWERS, openapi_extra=documented(ReopenTask, required=True))
async def reopen(request: Request, task: str) -> Response:
    """Begin a new generation of a task at a stage: every step may run again, under new keys."""
    return await _say(request, task, "reopen")


@router.post("/tasks/{task}/settle", responses=ANSWERS, openapi_extra=documented(SettleTask, required=True))
async def settle(request: Request, task: str) -> Response:
    """Say how the attempt of a parked task ended; it is believed."""
    return await _say(request, task, "settle")


async def _say(request: Request, task: str, verb: str) -> Response:
    require_token(request)
    service, raw = service_of(request), await read_bytes(request)

    async def make() -> Response:
        return await say(service, task, verb, raw)

    return await answers_of(request).once(request, raw, make)


async def say(service: Service, task: str, verb: str, raw: bytes) -> Response:
    """
    Say a verb about a task.

    Raises:
        Problem, JournalError: It was not said.
    """
    model, call = VERBS[verb]
    wanted = parse(model, raw)
    wanted.check()
    journal = writing(service)
    await known(service, task)
    return from_result(await call(journal, task, wanted))
