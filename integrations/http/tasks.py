"""Tasks: list, one, its events, open, advance; and the live feed of everything."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from integrations.http.auth import may_read, require_token
from integrations.http.bodies import AdvanceTask, OpenTask, documented, parse, read_bytes
from integrations.http.context import (
    After,
    Cursor,
    Limit,
    feed_of,
    json_response,
    known,
    lives,
    piece,
    service_of,
    writing,
)
from integrations.http.idempotency import Answers
from integrations.http.ports import Service
from integrations.http.problems import Problem, from_result, unknown_task
from integrations.http.shapes import (
    WRITING,
    AdvanceDocument,
    Documented,
    EventsDocument,
    ExplainDocument,
    TaskDocument,
    TasksDocument,
    answers,
    refusals,
)
from journal import names
from journal.events import Event
from journal.journal import NewTask
from journal.names import MAX_INTEGER
from projections.as_of import row_of
from projections.base import ask
from projections.events import events_of
from projections.history import tell
from projections.queue import all_tasks, one_task
from recovery.explain import explain as explained

router = APIRouter(tags=["tasks"])

WAIT_LIMIT_S = 600.0
STREAM: Documented = {200: {"content": {"text/event-stream": {}}}}


@router.get("/tasks", responses=answers(TasksDocument) | refusals(401, 422))
async def tasks(
    request: Request, repo: str = "", stage: str = "", status: str = "", limit: Limit = 200, cursor: Cursor = 0
) -> Response:
    """All tasks, newest first, the finished ones too."""
    may_read(request)
    page = await ask(service_of(request).reader, all_tasks(limit, cursor, repo, stage, status))
    return json_response({"tasks": piece(page.tasks), "next_cursor": page.cursor or None})


@router.get("/tasks/{task}", responses=answers(TaskDocument) | refusals(401, 404, 422))
async def task(request: Request, task: str) -> Response:
    """One task as it is now."""
    may_read(request)
    return await _shown(service_of(request), names.task_id(task))


async def _shown(service: Service, task: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    found = await ask(service.reader, one_task(task))
    if not found:
        raise unknown_task(task)
    data = orjson.loads(found)
    data["alive"] = lives(service, task, data["owner"]["instance"] if data["owner"] else "")
    return json_response(data, status, headers)


@router.get("/tasks/{task}/events", responses=answers(EventsDocument) | refusals(401, 404, 422))
async def events(request: Request, task: str, after: After = 0, limit: Limit = 1000) -> Response:
    """A task's events after a version."""
    may_read(request)
    reader = service_of(request).reader
    found, last = await ask(reader, events_of(names.task_id(task), after, limit))
    if not last and not await ask(reader, one_task(task)):
        raise unknown_task(task)
    return json_response({"task": task, "events": piece(found), "last_version": last or after})


@router.get("/tasks/{task}/explain", responses=answers(ExplainDocument) | refusals(401, 404, 422))
async def explain(request: Request, task: str) -> Response:
    """Why a task is where it is: what it waits for, what happens next, the last decision and what it rested on."""
    may_read(request)
    service = service_of(request)
    told = await history_of(service, names.task_id(task))
    row = row_of(task, told)
    edge = service.pipeline.edge(row.state.stage)
    held = lives(service, task, row.owner.instance)
    found = explained(
        row, tell(told), now_us=service.clock.now_us(), held=held, advance=edge.advance if edge is not None else ""
    )
    data = asdict(found) | {"paragraph": found.paragraph, "facts": dict(found.facts)}
    if found.decision is not None:
        data["decision"] |= {"seen": dict(found.decision.seen), "reply": dict(found.decision.reply)}
    return json_response(data)


async def history_of(service: Service, task: str) -> list[Event]:
    """
    A task's whole stream.

    Raises:
        Problem: 404, no event names it.
    """
    events: list[Event] = []
    while more := await service.reader.events(task=task, after=len(events)):
        events.extend(more)
    if not events:
        raise unknown_task(task)
    return events


@router.get("/events", responses=STREAM | refusals(401, 422, 503))
async def feed(
    request: Request,
    task: str = "",
    after: Annotated[int | None, Query(ge=0, le=MAX_INTEGER)] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=MAX_INTEGER)] = None,
) -> Response:
    """Server-sent events as they are written; `Last-Event-ID` is the position to go on behind."""
    may_read(request)
    listeners = feed_of(request)
    if listeners.full:
        raise Problem(503, "too-many-listeners", "too many listen already; ask again later, or poll /queue")
    begin = last_event_id if last_event_id is not None else after
    stream = listeners.listen(begin, names.task_id(task) if task else "")
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


@router.post(
    "/tasks",
    status_code=201,
    responses=answers(TaskDocument, 201) | refusals(*WRITING),
    openapi_extra=documented(OpenTask, required=True),
)
async def open_task(request: Request) -> Response:
    """Open a task in a stage of the pipeline."""
    require_token(request)
    service, raw = service_of(request), await read_bytes(request)

    async def make() -> Response:
        wanted = parse(OpenTask, raw)
        new = NewTask(wanted.task, wanted.repo, wanted.branch, wanted.base, wanted.head, wanted.pr, wanted.stage)
        await writing(service).open_task(new, actor=names.word(wanted.actor, "actor"))
        return await _shown(service, wanted.task, 201, {"Location": f"/tasks/{wanted.task}"})

    return await answers_of(request).once(request, raw, make)


@router.post(
    "/tasks/{task}/advance",
    status_code=202,
    responses=answers(AdvanceDocument) | answers(AdvanceDocument, 202) | refusals(*WRITING),
    openapi_extra=documented(AdvanceTask, required=False),
)
async def advance(
    request: Request, task: str, wait: Annotated[float, Query(ge=0, le=WAIT_LIMIT_S, allow_inf_nan=False)] = 0
) -> Response:
    """Move a task over its next edge; `wait` answers when the run ends, or after that many seconds."""
    require_token(request)
    service, raw = service_of(request), await read_bytes(request)

    async def make() -> Response:
        wanted = parse(AdvanceTask, raw)
        writing(service)
        await known(service, task)
        expect = names.word(wanted.expect, "expect") if wanted.expect else ""
        run = service.submit(task, names.word(wanted.actor, "actor"), expect)
        if wait:
            # Only looked at: whoever asked may go away, the run goes on.
            await asyncio.wait({run}, timeout=wait)
        if run.cancelled():
            raise Problem(503, "stopping", "the service is stopping; what was begun is settled at its next start")
        if run.done():
            return from_result(run.result())
        return json_response({"task": task, "state": "running"}, 202, {"Location": f"/tasks/{task}"})

    return await answers_of(request).once(request, raw, make)


def answers_of(request: Request) -> Answers:
    """What was answered to which Idempotency-Key."""
    answers: Answers = request.app.state.answers
    return answers
