"""
A double of the tracker: API v1 and webhooks of both generations, from the documented behaviour, flaws included.

Nothing is delivered by itself: notices wait in `notices`, so that a test can repeat, shuffle or lose them. One change
makes several of them under ids of their own (R74), changes made through the API are echoed (R75), and there is no
optimistic locking.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

KEY = "plane_api_made_up"
SECRET = "plane_wh_made_up"
WORKSPACE, PROJECT, IDENTIFIER = "acme", "00000000-0000-4000-8000-000000000001", "ORCH"
STATES = ("Review", "Approved", "Testing", "Staging", "Confirm Deploy", "Done")
PERSON, BOT = "person-1", "bot-1"

Notice = tuple[Mapping[str, str], bytes]


def made_up(text: str) -> str:
    """A uuid that is the same in every run."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text))


@dataclass
class Plane:
    """One project."""

    version: int = 1
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    comments: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    activities: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refused: list[int | tuple[int, dict[str, str]]] = field(default_factory=list)  # answered first, one a call
    headers: dict[str, str] = field(default_factory=dict)  # on every answer
    hang: bool = False
    states: dict[str, str] = field(default_factory=lambda: {name: made_up(f"state {name}") for name in STATES})
    page: int = 100
    _made: int = 0

    # -- what people and we do ----------------------------------------------------------------------------------------

    def add(self, number: int, state: str = "Review", **more: Any) -> str:
        """A work item; gives its id."""
        item = made_up(f"item {number}")
        base = {"id": item, "sequence_id": number, "name": f"Item {number}", "state": self.states[state]}
        self.items[item] = base | {"external_source": None, "external_id": None, "updated_at": self._now()} | more
        return item

    def state_of(self, number: int) -> str:
        """The name of an item's state."""
        at = self.items[made_up(f"item {number}")]["state"]
        return next(name for name, known in self.states.items() if known == at)

    def move(self, number: int, state: str, by: str = PERSON, key: str = "state_id") -> None:
        """Somebody moves an item; a move to where it is changes nothing and tells nobody."""
        item = self.items[made_up(f"item {number}")]
        old, new = item["state"], self.states[state]
        if old == new:
            return
        item |= {"state": new, "updated_at": self._now(), "updated_by": by}
        entry = {"field": "state", "old_identifier": old, "new_identifier": new, "old_value": self._name(old)}
        entry |= {"new_value": state, "actor": by, "created_at": item["updated_at"]}
        self.activities.setdefault(item["id"], []).insert(0, entry)
        if self.version == 2:
            self._tell("workitem.updated", self._second(item, by, {"state_id": old}), made_up(f"event {self._made}"))
            return
        for told in dict.fromkeys((key, "state_id")):  # reported: one change as `state` and as `state_id` (R74)
            self._tell("issue", self._first("issue", item, by, told, old, new))

    def say(self, number: int, text: str, by: str = PERSON) -> None:
        """Somebody comments an item."""
        item = self.items[made_up(f"item {number}")]
        comment = {"id": made_up(f"comment {self._now()}"), "comment_html": f"<p>{text}</p>", "issue": item["id"]}
        comment |= {"updated_at": self._now(), "actor": by}
        if self.version == 2:
            said = {"id": comment["id"], "actor_id": by, "issue_id": item["id"], "comment_stripped": text}
            body = self._second(item, by, {}) | {"data": {"id": item["id"], "comment": said}}
            self._tell("workitem.comment.created", body, made_up(f"event {self._made}"))
            return
        body = self._first("issue_comment", comment, by, None, None, None)
        self._tell("issue_comment", body | {"action": "created"})

    # -- notices ------------------------------------------------------------------------------------------------------

    def _first(self, event: str, data: Mapping[str, Any], by: str, told: Any, old: Any, new: Any) -> dict[str, Any]:
        activity = {"field": told, "old_value": old, "new_value": new, "old_identifier": None, "new_identifier": None}
        activity |= {"actor": {"id": by, "display_name": by}}
        shown = dict(data)
        if "state" in shown:
            shown["state"] = {"id": shown["state"], "name": self._name(shown["state"])}
        return {"event": event, "action": "updated", "data": shown, "activity": activity}

    def _second(self, item: Mapping[str, Any], by: str, before: Mapping[str, Any]) -> dict[str, Any]:
        data = {name: value for name, value in item.items() if name != "state"}
        data |= {"state_id": item["state"], "updated_by_id": by}
        return {"version": "v2", "entity_id": item["id"], "data": data, "previous_attributes": dict(before)}

    def _tell(self, event: str, body: dict[str, Any], event_id: str = "") -> None:
        delivery = made_up(f"delivery {len(self.notices)} {self._now()}")  # new on every attempt
        if event_id:
            # The documentation's own samples show the name of a Python enumeration there.
            body |= {"event_id": event_id, "delivery_id": delivery, "event": "WebhookScope.ScopeChoices.UPDATED"}
        self.notices.append(signed(event, json.dumps(body).encode(), delivery))

    def _name(self, state: str) -> str:
        return next(name for name, known in self.states.items() if known == state)

    def _now(self) -> str:
        self._made += 1
        return f"2026-01-01T00:00:{self._made // 60:02d}.{self._made:06d}Z"

    # -- the API ------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.calls.append(f"{scope['method']} {scope['path'].partition('/work-items/')[2] or scope['path']}")
        if self.hang:
            await asyncio.Event().wait()
        more = dict(self.headers)
        if self.refused:
            first = self.refused.pop(0)
            status, extra = (first, {}) if isinstance(first, int) else first
            body: Any = {"error": "refused"}
            more |= extra
        elif headers.get("x-api-key") != KEY:
            status, body = 403, {"detail": "Given API token is not valid"}
        else:
            query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
            status, body = self._route(scope["method"], scope["path"], query, json.loads(raw) if raw else {})
        listed = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in more.items())]
        await send({"type": "http.response.start", "status": status, "headers": listed})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    def _route(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> tuple[int, Any]:
        root = f"/api/v1/workspaces/{WORKSPACE}"
        parts = path.removeprefix(f"{root}/projects/{PROJECT}").strip("/").split("/")
        if path.startswith(f"{root}/work-items/"):
            number = path.rstrip("/").rpartition("-")[2]
            found = self.items.get(made_up(f"item {number}"))
            return (200, found) if found else (404, {"error": "not found"})
        match method, parts:
            case "GET", ["states"]:
                return 200, self._paged(
                    [{"id": i, "name": n, "group": "started"} for n, i in self.states.items()], query
                )
            case "GET", ["work-items"]:
                return 200, self._paged(list(self.items.values()), query)
            case _, ["work-items", item, *_] if item not in self.items:
                return 404, {"error": "The requested resource does not exist."}
            case "GET", ["work-items", item]:
                return 200, self.items[item]
            case "PATCH", ["work-items", item]:
                self.move(self.items[item]["sequence_id"], self._name(body["state"]), by=BOT, key="state")
                return 200, self.items[item]
            case "GET", ["work-items", item, "activities"]:
                return 200, self._paged(self.activities.get(item, []), query)
            case "POST", ["work-items", item, "comments"]:
                return self._comment(item, body)
            case _:
                return 404, {"error": f"no route for {method} {path}"}

    def _comment(self, item: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        listed = self.comments.setdefault(item, [])
        marks = ("external_source", "external_id")
        for known in listed:
            if all(known[mark] == body[mark] for mark in marks):
                return 409, {"error": "Comment with the same external id and source exists", "id": known["id"]}
        listed.append({"id": made_up(f"comment {self._now()}"), **body})
        self.say(self.items[item]["sequence_id"], body["comment_html"], by=BOT)
        return 201, listed[-1]

    def _paged(self, entries: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
        size = min(int(query.get("per_page", self.page)), self.page)
        at = int(query.get("cursor", "0:0:0").split(":")[1])
        part = entries[at * size : (at + 1) * size]
        more = (at + 1) * size < len(entries)
        return {"results": part, "next_cursor": f"{size}:{at + 1}:0", "next_page_results": more, "count": len(part)}


def signed(event: str, raw: bytes, delivery: str = "d-1", secret: str = SECRET) -> Notice:
    """A delivery of these bytes, as the tracker signs it."""
    signature = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return {"x-plane-event": event, "x-plane-delivery": delivery, "x-plane-signature": signature}, raw
