"""
The web page: the board, one task, its verbs as plain forms (CONTRACT "HTTP", `GET /`).

Works with scripts off. Writing needs the token in the form itself, so no other site can write with a browser's cookies;
the cookie of a browser that showed a token opens reading only, and only where reading needs a token at all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from integrations.http.auth import COOKIE, Readers, Tokens, may_read
from integrations.http.bodies import read_bytes
from integrations.http.context import known, service_of, writing
from integrations.http.ports import Service
from integrations.http.problems import TITLES, Problem, from_error, from_result, unauthorized
from integrations.http.tasks import history_of
from integrations.http.verbs import VERBS, say
from integrations.page.board import ATTENTION, COLUMN, EXPLAINED, Attention, Board, Tile, attention, columns
from integrations.page.render import render, statics
from integrations.page.task import TaskPage, task_page
from integrations.page.verbs import verbs_for
from journal import names
from journal.errors import JournalError
from journal.names import MAX_INTEGER
from journal.ownership import is_held
from projections.as_of import row_of
from projections.base import Question, ask
from projections.board import column, doubtful, found, parked
from projections.board import columns as first_of_each
from projections.history import tell
from projections.queue import all_tasks, ended_count, snapshot
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

ENDED = 20
"""Ended tasks on the board, the newest."""

FOUND = 100
"""Tasks that a search shows."""

FORM_LIMIT = 32 * 1024
"""Bytes."""

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere."""

YEAR = "public, max-age=31536000, immutable"


@router.get("/")
async def board(
    request: Request,
    q: Annotated[str, Query(max_length=100)] = "",
    repo: Annotated[str, Query(max_length=400)] = "",
    stage: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int, Query(ge=0, le=MAX_INTEGER)] = 0,
) -> Response:
    """The board; with `q` what a search finds, with `stage` the rest of one column."""
    may_read(request)
    service = service_of(request)
    if text := q.strip():
        tasks = await _listing(service, found(text, FOUND))
        title = f"{len(tasks)}{' or more' if len(tasks) == FOUND else ''} found for '{text}'"
        return _listed(request, title, tasks, "", q=text)
    if stage:
        page = await ask(service.reader, column(stage, COLUMN, after))
        more = f"/?{urlencode({'stage': stage, 'after': page.cursor})}" if page.cursor else ""
        return _listed(request, f"Stage {stage}", orjson.loads(page.tasks), more)
    return _page(request, "board.html", b=await _board(service, repo))


def _listed(request: Request, title: str, tasks: Sequence[Any], more: str, **given: Any) -> Response:
    now_us = service_of(request).clock.now_us()
    return _page(request, "list.html", title=title, tasks=tasks, more=more, now_us=now_us, **given)


async def _board(service: Service, repo: str) -> Board:
    now_us = service.clock.now_us()
    seen = await ask(service.reader, snapshot(now_us, 1, repo=repo))
    owners = [each | _owning(service, each, now_us) for each in orjson.loads(seen.held)]
    tasks = await _listing(service, first_of_each(COLUMN, repo))
    ended = orjson.loads((await ask(service.reader, all_tasks(ENDED, repo=repo, status="done"))).tasks)
    doubts = await _listing(service, doubtful(ATTENTION, repo))
    left = await _listing(service, parked(ATTENTION, repo))
    counts: dict[str, int] = orjson.loads(seen.counts)
    ended_number = await ask(service.reader, ended_count())
    noticed = attention(left, doubts, owners)
    return Board(
        position=seen.position,
        now_us=now_us,
        tiles=_tiles(counts, owners, len(doubts), len(orjson.loads(seen.parked)), seen.due, seen.waiting, ended_number),
        attention=[
            await _explained(service, each, now_us) if place < EXPLAINED else each
            for place, each in enumerate(noticed[:ATTENTION])
        ],
        more_attention=len(noticed) > ATTENTION,
        owners=owners,
        columns=columns(service.pipeline.stages, counts, tasks, ended, ended_number),
        repos=_repos(tasks, repo),
        repo=repo,
    )


async def _listing(service: Service, question: Question[bytes]) -> list[dict[str, Any]]:
    stored = await ask(service.reader, question)
    tasks: list[dict[str, Any]] = orjson.loads(stored)
    return tasks


def _owning(service: Service, held: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """Whether an owner lives, and since when it owns in a form that ages by itself."""
    return {"alive": is_held(service.locks.task_path(held["task"])), "since_us": now_us - held["age_s"] * 1_000_000}


def _tiles(
    counts: Mapping[str, int],
    owners: Sequence[Mapping[str, Any]],
    doubts: int,
    parked_number: int,
    due: int,
    waiting: int,
    ended: int,
) -> list[Tile]:
    gone = sum(not each["alive"] for each in owners)
    return [
        Tile("open", sum(counts.values())),
        Tile("owned", len(owners), "accent"),
        Tile("due", due),
        Tile("waiting", waiting),
        Tile("in doubt", doubts + gone, "warn"),
        Tile("parked", parked_number, "bad"),
        Tile("ended", ended, "ok"),
    ]


def _repos(tasks: Sequence[Mapping[str, Any]], repo: str) -> list[str]:
    names_of = sorted({str(t["repo"]) for t in tasks} | ({repo} if repo else set()))
    return names_of if len(names_of) > 1 or repo else []


async def _explained(service: Service, noticed: Attention, now_us: int) -> Attention:
    events = await history_of(service, noticed.task)
    row = row_of(noticed.task, events)
    alive = is_held(service.locks.task_path(noticed.task))
    told = explain(row, tell(events), now_us=now_us, held=alive)
    return replace(noticed, explained=told, verbs=verbs_for(noticed.task, row.state, alive=alive))


# -- one task ---------------------------------------------------------------------------------------------------------


@router.get("/task/{task}")
async def task(
    request: Request,
    task: str,
    before: Annotated[int, Query(ge=0, le=MAX_INTEGER)] = 0,
    said: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """One task."""
    may_read(request)
    page = await _task(service_of(request), names.task_id(task), before)
    recorded = said if said in VERBS or said in ("release", "advance") else ""
    return _page(request, "task.html", p=page, said=recorded, opened="")


async def _task(service: Service, task: str, before: int) -> TaskPage:
    events = await history_of(service, task)
    row, story, now_us = row_of(task, events), tell(events), service.clock.now_us()
    alive = is_held(service.locks.task_path(task))
    edge = service.pipeline.edge(row.state.stage)
    why: Explanation = explain(row, story, now_us=now_us, held=alive, advance=edge.advance if edge is not None else "")
    return task_page(row, story, events, why, now_us=now_us, alive=alive, stages=service.pipeline.stages, before=before)


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
