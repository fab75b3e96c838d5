"""
Telegram's sendMessage (deploy-facts 4): HTML with a clickable task, at least once, never the token in a log.

It takes no client key, so a retry after a lost answer may tell twice; the id in the text says that it is one.
"""

from __future__ import annotations

import html
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import structlog

from integrations.alerts.alert import Alert
from integrations.alerts.config import AlertsConfig
from integrations.alerts.outbox import NotDeliveredError
from journal.names import shown

logger = structlog.get_logger(__name__)

LIMIT = 4096
"""UTF-16 code units of a message, after its entities were parsed."""
REASON_LIMIT = 700
FULL = 5
"""Alerts of one message that are told in full; of more each gets one line."""
TIMEOUT_S = 20.0
LATER_S, MUCH_LATER_S = 10.0, 300.0
"""Rest after a failure that passes by itself, and after one that a person must mend."""


@dataclass(frozen=True, slots=True)
class Text:
    """The same words twice: with entities, and without."""

    marked: str
    plain: str

    @property
    def size(self) -> int:
        """Length as the far side counts it."""
        return len(self.plain.encode("utf-16-le", "replace")) // 2


class Telegram:
    """
    A sink that is one chat.

    Args:
        config: The chat, and where a task can be looked at.
        token: The bot's token.
    """

    def __init__(self, config: AlertsConfig, token: str) -> None:
        self._config, self._chat = config, config.telegram_chat
        self._url = f"{config.telegram_api}/bot{token}/sendMessage"
        self._tls = httpx.create_ssl_context() if self._url.startswith("https:") else False
        # The token is in the address, and these two would write addresses down.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)

    def wants(self, alert: Alert) -> bool:
        """Everything."""
        return True

    async def deliver(self, alerts: Sequence[Alert]) -> int:
        """Send one message with as many alerts as fit."""
        texts = [self._full(a) for a in alerts] if len(alerts) <= FULL else [self._short(a) for a in alerts]
        size, count = texts[0].size, 1
        while count < len(texts) and size + texts[count].size + 2 <= LIMIT:
            size += texts[count].size + 2
            count += 1
        between = "\n\n" if len(alerts) <= FULL else "\n"
        marked, plain = (between.join(part) for part in zip(*((t.marked, t.plain) for t in texts[:count]), strict=True))
        await self._send(Text(marked, plain))
        return count

    def _full(self, alert: Alert) -> Text:
        subject, reason = self._subject(alert), _cut(alert.reason, REASON_LIMIT)
        step = f", step {alert.step}" if alert.step else ""
        remedy = f"journal explain {alert.task}" if alert.task else "journal verify"
        told = _escaped(f"{step}\n{reason}")
        return Text(
            f"<b>{alert.what}</b> {subject.marked}{told}\n<code>{_escaped(remedy)}</code>\nid {_escaped(alert.id)}",
            f"{alert.what} {subject.plain}{step}\n{reason}\n{remedy}\nid {alert.id}",
        )

    def _short(self, alert: Alert) -> Text:
        subject, reason = self._subject(alert), _cut(alert.reason, 80)
        return Text(
            f"<b>{alert.what}</b> {subject.marked}: {_escaped(reason)} (id {_escaped(alert.id)})",
            f"{alert.what} {subject.plain}: {reason} (id {alert.id})",
        )

    def _subject(self, alert: Alert) -> Text:
        task = alert.task or "the journal"
        if not alert.task or not self._config.task_url:
            return Text(_escaped(task), task)
        address = self._config.task_url.replace("{task}", quote(alert.task, safe=""))
        return Text(f'<a href="{html.escape(address)}">{_escaped(task)}</a>', task)

    async def _send(self, text: Text) -> None:
        status, answer = await self._post({"text": text.marked, "parse_mode": "HTML"})
        if moved := _parameter(answer, "migrate_to_chat_id"):
            logger.warning("telegram_chat_moved", now=moved, remedy="write the new id into telegram_chat")
            self._chat = str(moved)
            status, answer = await self._post({"text": text.marked, "parse_mode": "HTML"})
        if status == 400 and "parse" in str(answer.get("description") or "").lower():
            # The message is lost: its words are worth more than its looks.
            status, answer = await self._post({"text": text.plain})
        if status == 200 and answer.get("ok") is True:
            return
        why = f"Telegram answered {status}: {shown(str(answer.get('description') or ''), 200)}"
        if status == 429:
            raise NotDeliveredError(why=why, retry_s=float(_parameter(answer, "retry_after") or LATER_S) + 1)
        raise NotDeliveredError(why=why, retry_s=MUCH_LATER_S if 400 <= status < 500 else LATER_S)

    async def _post(self, message: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        body = {"chat_id": self._chat, "link_preview_options": {"is_disabled": True}, **message}
        try:
            async with httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=TIMEOUT_S) as http:
                answer = await http.post(self._url, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = f"Telegram did not answer ({type(error).__name__})"  # the error's own words may hold the address
            raise NotDeliveredError(why=why, retry_s=LATER_S) from None
        try:
            value = json.loads(answer.content)
        except (ValueError, RecursionError):
            value = None
        return answer.status_code, value if isinstance(value, dict) else {}


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _parameter(answer: Mapping[str, Any], name: str) -> int:
    parameters = answer.get("parameters")
    value = parameters.get(name) if isinstance(parameters, dict) else 0
    return value if isinstance(value, int) else 0


def _cut(text: str, limit: int) -> str:
    """Make foreign text one short printable line."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
