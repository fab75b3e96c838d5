"""
The web page: the board, one task, its verbs as plain forms (CONTRACT "HTTP", `GET /`).

Works with scripts off. Writing needs the token in the form itself, so no other site can write with a browser's cookies;
the cookie of a browser that showed a token opens reading only, and only where reading needs a token at all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from integrations.http.auth import COOKIE, Readers, Tokens, may_read
from integrations.http.boards import board_at, board_now, listing
from integrations.http.bodies import read_bytes
from integrations.http.context import known, lives, service_of, writing
from integrations.http.ports import Service
from integrations.http.problems import TITLES, Problem, from_error, from_result, unauthorized
from integrations.http.queue import position_of
from integrations.http.tasks import history_of
from integrations.http.verbs import VERBS, say
from integrations.page.board import COLUMN
from integrations.page.render import render, statics
from integrations.page.task import TaskPage, task_page, task_page_at
from journal import names
from journal.errors import JournalError
from journal.names import MAX_INTEGER
from projections.as_of import row_of
from projections.base import ask
from projections.board import column, found
from projections.differences import difference
from projections.events import head, time_of
from projections.history import tell
from recovery.explain import Explanation, explain


class PageRoute(APIRoute):
    """Answers refusals with a page instead of a problem document."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        route = super().get_route_handler()

        async def with_pages(request: Request) -> Response:
            try:
                return await route(request)
            except Problem as problem:
                return _refusal(request, problem.status, problem.detail)
            except JournalError as error:
                known_as = from_error(error)
                return _refusal(request, known_as.status, known_as.detail)

        return with_pages


router = APIRouter(include_in_schema=False, route_class=PageRoute)

CHANGES = 500
"""Tasks that a difference looks at."""

FOUND = 100
"""Tasks that a search shows."""

FORM_LIMIT = 32 * 1024
"""Bytes."""

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere."""

At = Annotated[str, Query(max_length=64)]
"""A position, a time in UTC, or how long ago: 1234, 2026-11-29 12:00, 2h."""

YEAR = "public, max-age=31536000, immutable"


@router.get("/")
async def board(
    request: Request,
    q: Annotated[str, Query(max_length=100)] = "",
    repo: Annotated[str, Query(max_length=400)] = "",
    stage: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER)] = 0,
    at: At = "",
) -> Response:
    """The board; with `q` what a search finds, with `stage` the rest of one column, with `at` as it was then."""
    may_read(request)
    service = service_of(request)
    if at.strip():
        position = await position_of(service, at, "as of", zone=False)
        return _page(request, "board.html", b=await board_at(service, position, repo, after), past=True)
    if text := q.strip():
        tasks = await listing(service, found(text, FOUND))
        title = f"{len(tasks)}{' or more' if len(tasks) == FOUND else ''} found for '{text}'"
        return _listed(request, title, tasks, "", q=text)
    if stage:
        page = await ask(service.reader, column(stage, COLUMN, after))
        more = f"/?{urlencode({'stage': stage, 'after': page.cursor})}" if page.cursor else ""
        return _listed(request, f"Stage {stage}", orjson.loads(page.tasks), more)
    return _page(request, "board.html", b=await board_now(service, repo))


def _listed(request: Request, title: str, tasks: Sequence[Any], more: str, **given: Any) -> Response:
    now_us = service_of(request).clock.now_us()
    return _page(request, "list.html", title=title, tasks=tasks, more=more, now_us=now_us, **given)


# -- one task ---------------------------------------------------------------------------------------------------------


@router.get("/task/{task}")
async def task(
    request: Request,
    task: str,
    before: Annotated[int, Query(ge=0, le=MAX_INTEGER)] = 0,
    said: Annotated[str, Query(max_length=20)] = "",
    at: At = "",
) -> Response:
    """One task; with `at` as it was then."""
    may_read(request)
    service = service_of(request)
    if at.strip():
        page = await _task_at(service, names.task_id(task), await position_of(service, at, "as of", zone=False), before)
        return _page(request, "task.html", p=page, said="", opened="", past=True)
    page = await _task(service, names.task_id(task), before)
    recorded = said if said in VERBS or said in ("release", "advance") else ""
    return _page(request, "task.html", p=page, said=recorded, opened="")


async def _task(service: Service, task: str, before: int) -> TaskPage:
    events = await history_of(service, task)
    row, story, now_us = row_of(task, events), tell(events), service.clock.now_us()
    alive = lives(service, task, row.owner.instance)
    edge = service.pipeline.edge(row.state.stage)
    why: Explanation = explain(row, story, now_us=now_us, held=alive, advance=edge.advance if edge is not None else "")
    return task_page(row, story, events, why, now_us=now_us, alive=alive, stages=service.pipeline.stages, before=before)


async def _task_at(service: Service, task: str, position: int, before: int) -> TaskPage:
    history = await history_of(service, task)
    if history[0].position > position:
        detail = f"{task} was opened at position {history[0].position}; at position {position} it was not there yet"
        raise Problem(404, "not-found", detail)
    return task_page_at(task, history, position, stages=service.pipeline.stages, before=before)


@router.get("/changes")
async def changes(
    request: Request,
    since: Annotated[str, Query(alias="from", max_length=64)] = "1h",
    until: Annotated[str, Query(alias="to", max_length=64)] = "",
    repo: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """What became of the queue between two points."""
    may_read(request)
    service = service_of(request)
    one = await position_of(service, since, "from", zone=False)
    last = await ask(service.reader, head())
    other = await position_of(service, until, "to", zone=False) if until.strip() else last
    found = await difference(service.reader, one, other, limit=CHANGES, repo=repo)
    times = [await ask(service.reader, time_of(position)) for position in (found.earlier, found.later)]
    return _page(request, "changes.html", d=found, times=times, since=since, until=until, position=last, past=True)


@router.post("/task/{task}/{verb}")
async def speak(request: Request, task: str, verb: str) -> Response:
    """Say a verb with a form; the answer is the task's page, or a page that says why not."""
    given = await _form(request)
    tokens: Tokens = request.app.state.tokens
    if not tokens.admits(f"Bearer {given.pop('token', '')}"):
        return _refusal(request, 401, "The token is missing or wrong; nothing was recorded.", task)
    answer = await _said(service_of(request), names.task_id(task), verb, given)
    if answer.status_code >= 400:
        document = orjson.loads(answer.body)
        return _refusal(request, answer.status_code, str(document.get("detail") or document.get("title")), task)
    return RedirectResponse(f"/task/{quote(task, safe='')}?said={verb}", 303)


async def _said(service: Service, task: str, verb: str, given: Mapping[str, str]) -> Response:
    if verb in VERBS:
        return await say(service, task, verb, orjson.dumps(given))
    if verb not in ("release", "advance"):
        raise Problem(404, "not-found", f"there is no verb '{names.shown(verb)}'")
    journal = writing(service)
    await known(service, task)
    if verb == "release":
        reason = names.prose(given.get("reason", ""), "reason")
        return from_result(await journal.release(task, reason=reason, actor="operator"))
    service.submit(task, "operator", "")  # how it goes is told by the feed
    return Response(status_code=202)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form."""
    raw = await read_bytes(request, FORM_LIMIT)
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=20)
    except ValueError as error:
        raise Problem(422, "invalid-input", "this is not a form's body") from error
    return dict(pairs)


@router.post("/enter")
async def enter(request: Request) -> Response:
    """Show a token once, where reading needs one; a cookie remembers that, not the token."""
    given = await _form(request)
    tokens: Tokens = request.app.state.tokens
    readers: Readers = request.app.state.readers
    if not tokens.admits(f"Bearer {given.get('token', '')}"):
        raise unauthorized()
    answer = RedirectResponse("/", 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, readers.enter(), httponly=True, samesite="strict", secure=secure)
    return answer


# -- what they share --------------------------------------------------------------------------------------------------


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """A file of the page; its address holds a mark of its contents, so it may be kept."""
    file = statics().get(name)
    if file is None:
        raise Problem(404, "not-found", f"there is no file '{names.shown(name)}'")
    return Response(file.body, media_type=file.media_type, headers={"Cache-Control": YEAR})


def _page(request: Request, template: str, **given: Any) -> Response:
    return _html(request, template, 200, **given)


def _html(request: Request, template: str, code: int, **given: Any) -> Response:
    service = service_of(request)
    position = given["b"].position if "b" in given else given["p"].row.position if "p" in given else ""
    frame = {
        "q": "",
        "ready": service.ready()[0],
        "standby": service.standby,
        "version": service.version,
        "position": position,
        "past": False,
    }
    return HTMLResponse(render(template, **(frame | given)), code, {"Content-Security-Policy": POLICY})


def _refusal(request: Request, code: int, detail: str, task: str = "") -> Response:
    enterable = code == 401 and request.method == "GET"
    return _html(
        request,
        "problem.html",
        code,
        heading=TITLES.get(code, "Refused"),
        detail=detail,
        status=code,
        task=task,
        enter=enterable,
    )
