"""A double of Telegram's sendMessage: its limits, its refusals, and every message that it took."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.serving import hang_up

TOKEN = "123:made-up-token"
_TAGS = re.compile(r"</?(?:b|i|u|s|code|pre|a|blockquote)(?: href=\"[^\"<>]*\")?>")


@dataclass
class Telegram:
    """One bot and its chats."""

    messages: list[dict[str, Any]] = field(default_factory=list)  # taken, in order
    calls: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, Any] | int] = field(default_factory=list)  # given first: a body, or a bare status
    drop_after: int = 0  # so many messages are taken and their answer is lost
    moved_to: int = 0  # the chat became another one

    @property
    def texts(self) -> list[str]:
        """What people read."""
        return [html.unescape(_TAGS.sub("", m["text"])) if "parse_mode" in m else m["text"] for m in self.messages]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, body = self._answer(scope["path"], json.loads(raw))
        if status == 200 and self.drop_after:
            self.drop_after -= 1
            hang_up(send)
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    def _answer(self, path: str, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.calls.append(message)
        if self.refusals:
            refusal = self.refusals.pop(0)
            return (refusal, {}) if isinstance(refusal, int) else (refusal["error_code"], {"ok": False, **refusal})
        if path != f"/bot{TOKEN}/sendMessage":
            return _refused(401, "Unauthorized")
        if self.moved_to and message["chat_id"] != str(self.moved_to):
            parameters = {"migrate_to_chat_id": self.moved_to}
            return 400, {
                "ok": False,
                "error_code": 400,
                "description": "Bad Request: upgraded",
                "parameters": parameters,
            }
        text = message["text"]
        if message.get("parse_mode") == "HTML":
            if re.search(r"[<>]", _TAGS.sub("", text)):
                return _refused(400, "Bad Request: can't parse entities: unsupported start tag")
            text = html.unescape(_TAGS.sub("", text))
        if not 0 < len(text.encode("utf-16-le")) // 2 <= 4096:
            return _refused(400, "Bad Request: message is too long")
        self.messages.append(message)
        return 200, {"ok": True, "result": {"message_id": len(self.messages)}}


def _refused(code: int, why: str) -> tuple[int, dict[str, Any]]:
    return code, {"ok": False, "error_code": code, "description": why}
