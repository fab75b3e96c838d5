"""The composition root of the API: one application over one running service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

from integrations.http import operations, page, problems, queue, tasks, verbs, webhooks
from integrations.http.auth import Readers, Tokens
from integrations.http.feed import Feed
from integrations.http.headers import SafeHeaders
from integrations.http.idempotency import Answers
from integrations.http.metrics import Decisions
from integrations.http.ports import Service
from integrations.http.webhooks import Notices, Receiver


class Through:
    """Reads through whatever the service has open at the moment: a standby that takes over opens the log anew."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        return await self._service.reader.query(sql, parameters)


def create_app(service: Service, tokens: Tokens, receiver: Receiver | None = None) -> FastAPI:
    """
    Make the application; whoever runs it calls `app.state.feed.close()` before a graceful shutdown.

    Args:
        service: What runs behind it.
        tokens: Who may write, and whether reading needs a token, too.
        receiver: Takes webhooks in; None = there are none.
    """
    # Interactive pages load scripts from elsewhere; the document itself is enough.
    app = FastAPI(title="transition-journal", version="1", docs_url=None, redoc_url=None)
    app.state.service, app.state.tokens, app.state.receiver = service, tokens, receiver
    app.state.feed, app.state.answers = Feed(Through(service), service.clock), Answers()
    app.state.readers, app.state.decisions, app.state.notices = Readers(), Decisions(), Notices()
    app.add_middleware(SafeHeaders)
    problems.install(app)
    for part in (queue, tasks, verbs, operations, webhooks, page):
        app.include_router(part.router)
    return app
