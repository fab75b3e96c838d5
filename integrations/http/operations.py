"""What operators and machines ask of the process: health, readiness, version, figures, a stuck ownership's release."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from integrations.http.auth import may_read, require_token
from integrations.http.bodies import ReleaseTask, documented, parse, read_bytes
from integrations.http.context import json_response, known, service_of, writing
from integrations.http.metrics import as_json, as_text, read_figures
from integrations.http.problems import from_result
from integrations.http.shapes import (
    WRITING,
    AdvanceDocument,
    HealthDocument,
    ReadyDocument,
    VersionDocument,
    answers,
    refusals,
)
from integrations.http.tasks import answers_of
from journal import names

router = APIRouter(tags=["operations"])


@router.get("/healthz", responses=answers(HealthDocument))
async def health() -> Response:
    """The process answers; nothing is asked of the log, so a full disk does not get it restarted."""
    return json_response({"status": "ok"})


@router.get("/readyz", responses=answers(ReadyDocument) | answers(ReadyDocument, 503))
async def ready(request: Request) -> Response:
    """
    Every open task is decided and the log can be written.

    Decided, not settled: a deployer that waits for this never waits for itself.
    """
    service = service_of(request)
    is_ready, reason = service.ready()
    body = {"ready": is_ready, "reason": reason, "standby": service.standby}
    return json_response(body, 200 if is_ready else 503)


@router.get("/version", responses=answers(VersionDocument))
async def version(request: Request) -> Response:
    """The running commit."""
    service = service_of(request)
    return json_response({"version": service.version, "instance": service.instance, "started_at": service.started_us})


@router.get(
    "/metrics", responses={200: {"content": {"text/plain": {}, "application/json": {}}, "description": "Figures."}}
)
async def metrics(request: Request) -> Response:
    """Figures for Prometheus; as JSON with a `schema_version` if that is what `Accept` asks for."""
    may_read(request)
    state = request.app.state
    figures = await read_figures(service_of(request), state.decisions, state.notices.counts)
    if "application/json" in request.headers.get("accept", ""):
        return Response(as_json(figures), media_type="application/json")
    from prometheus_client import CONTENT_TYPE_LATEST  # loaded with the text itself, not before the service is ready

    return Response(as_text(figures), headers={"Content-Type": CONTENT_TYPE_LATEST})


@router.post(
    "/transition-lease/release",
    responses=answers(AdvanceDocument, description="Free under a new epoch, or parked.") | refusals(*WRITING),
    openapi_extra=documented(ReleaseTask, required=False),
)
async def release(request: Request, work_item: Annotated[str, Query(max_length=64)]) -> Response:
    """Take a stuck ownership away: the holder is ended and fenced, what it began is settled from facts (R103)."""
    require_token(request)
    service, raw = service_of(request), await read_bytes(request)

    async def make() -> Response:
        wanted = parse(ReleaseTask, raw)
        journal = writing(service)
        await known(service, work_item)
        reason, actor = names.prose(wanted.reason, "reason"), names.word(wanted.actor, "actor")
        return from_result(await journal.release(work_item, reason=reason, actor=actor))

    return await answers_of(request).once(request, raw, make)
