"""
The operator's verbs over HTTP: each is one event with actor and reason, and performs no effect by itself (R104, V6).

What may be said when is for the journal to decide: a verb that does not fit the task answers 409 with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its body, how it is put to the journal, and what it says of itself."""

    body: type[VerbBody]
    call: Call
    does: str


def _resume(journal: Journal, task: str, body: VerbBody) -> Coroutine[Any, Any, Said]:
    return journal.resume(task, reason=body.reason, actor=body.actor)


VERBS = {
    "pause": Verb(
        PauseTask,
        lambda j, task, b: j.pause(task, reason=b.reason, actor=b.actor),
        "Stop a task from being driven; an attempt that is in doubt stays so until it is resumed.",
    ),
    "resume": Verb(ResumeTask, _resume, "Let a paused or parked task be driven again."),
    "retry": Verb(ResumeTask, _resume, "Let a parked task try again, with new attempts; the world is asked first."),
    "cancel": Verb(
        CancelTask,
        lambda j, task, b: j.cancel(task, reason=b.reason, actor=b.actor),
        "End a task before its next irreversible call; what may still land is settled first.",
    ),
    "reopen": Verb(
        ReopenTask,
        lambda j, task, b: j.reopen(task, stage=b.stage, head=b.head, reason=b.reason, actor=b.actor),
        "Begin a new generation of a task at a stage: every step may run again, under new keys.",
    ),
    "settle": Verb(
        SettleTask,
        lambda j, task, b: j.settle(task, applied=b.applied, evidence=b.evidence, reason=b.reason, actor=b.actor),
        "Say how the attempt of a parked task ended; it is believed.",
    ),
}
"""By name; the page's forms say the same ones."""


def _route(name: str, verb: Verb) -> None:
    async def said(request: Request, task: str) -> Response:
        require_token(request)
        service, raw = service_of(request), await read_bytes(request)

        async def make() -> Response:
            return await say(service, task, name, raw)

        return await answers_of(request).once(request, raw, make)

    router.add_api_route(
        f"/tasks/{{task}}/{name}",
        said,
        methods=["POST"],
        name=name,
        description=verb.does,
        responses=ANSWERS,
        openapi_extra=documented(verb.body, required=True),
    )


for _name, _verb in VERBS.items():
    _route(_name, _verb)


async def say(service: Service, task: str, verb: str, raw: bytes) -> Response:
    """
    Say a verb about a task.

    Raises:
        Problem, JournalError: It was not said.
    """
    wanted = parse(VERBS[verb].body, raw)
    wanted.check()
    journal = writing(service)
    await known(service, task)
    return from_result(await VERBS[verb].call(journal, task, wanted))
