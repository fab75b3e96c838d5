"""
Webhooks of both generations: an authenticated hint to look again, never what is now the case (plane.md 2; R69-R75).

v1 gives each attempt a new delivery id and one change several notices, so a notice is known by what it is about. Event
names, missing values and actors are read tolerantly: the documentation's own samples disagree with it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from integrations.plane.config import PlaneConfig
from integrations.plane.poll import task_in
from journal import names
from journal.errors import InvalidInputError
from recovery.outside import Hint

_HEX = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Notice:
    """One delivery, read."""

    delivery: str  # equal for every notice of one change
    what: str  # for people
    item: str = ""  # id of the work item
    task: str = ""  # "" = it does not say
    state: str = ""  # id of the state it was moved to; "" = no move
    comment: str = ""  # text or HTML of a comment, as sent
    actor: str = ""  # id of whoever did it; "" = it does not say


class PlaneHooks:
    """
    Checks and reads notices.

    Args:
        config: Says how tasks are named and which account is ours.
        secret: Of the webhook.
        task_of: Names the task of a work item seen before; "" = not known.
        woken: Called for every authentic notice.

    Raises:
        InvalidInputError: The secret is empty, and anything could be signed with nothing (R72).
    """

    def __init__(
        self, config: PlaneConfig, secret: str, task_of: Callable[[str], str], woken: Callable[[], None]
    ) -> None:
        if not secret:
            raise InvalidInputError(what="ORCH_PLANE_WEBHOOK_SECRET", why="is empty; set it to the webhook's secret")
        self._config, self._secret = config, secret.encode()
        self._task_of, self._woken = task_of, woken

    def verify(self, raw: bytes, headers: Mapping[str, str]) -> Hint | None:
        """Check a notice, and say which task to look at; None = not authentic. Our own echo names no task (R75)."""
        notice = self.read(raw, headers)
        if notice is None:
            return None
        return Hint(notice.delivery, notice.what, "" if self.is_echo(notice) else notice.task)

    def read(self, raw: bytes, headers: Mapping[str, str]) -> Notice | None:
        """
        Check the signature over the bytes as they came, and read the notice; None = not authentic.

        Args:
            raw: The body, byte for byte.
            headers: By lower-case name.
        """
        if not self._signed(raw, headers.get("x-plane-signature", "")):
            return None
        self._woken()
        body = _object(raw)
        event = str(body.get("event") or "")
        if ("." not in event and body.get("version") == "v2") or "ScopeChoices" in event:
            event = headers.get("x-plane-event", "")
        notice = _second(event, body) if body.get("version") == "v2" else _first(event, body)
        task = task_in(_data(body), self._config.identifier) or self._task_of(notice.item)
        unnamed = hashlib.sha256(raw).hexdigest()
        return Notice(
            delivery=notice.delivery or headers.get("x-plane-delivery", "")[:64] or unnamed,
            what=names.shown(notice.what or event or "unreadable", 60),
            item=notice.item,
            task=_valid_task(task),
            state=notice.state,
            comment=notice.comment,
            actor=notice.actor,
        )

    def is_echo(self, notice: Notice) -> bool:
        """Tell whether our own account did it: a no-op, since whatever we show holds already (R75)."""
        return bool(self._config.account) and notice.actor == self._config.account

    def _signed(self, raw: bytes, given: str) -> bool:
        wanted = hmac.new(self._secret, raw, hashlib.sha256).hexdigest()
        # compare_digest refuses text that is not ASCII, so the form is checked first.
        return bool(_HEX.match(given)) and hmac.compare_digest(given, wanted)


def _first(event: str, body: Mapping[str, Any]) -> Notice:
    data, activity = _data(body), _mapping(body.get("activity"))
    action, field = _text(body.get("action")), _text(activity.get("field"))
    actor = _text(_mapping(activity.get("actor")).get("id"))
    if event == "issue_comment":
        what, item = f"comment {action}", _text(data.get("issue"))
        delivery = f"comment:{_text(data.get('id'))}:{_text(data.get('updated_at'))}"
        return Notice(delivery, what, item, comment=_text(data.get("comment_html")), actor=actor)
    item = _text(data.get("id"))
    if event == "issue" and action == "updated" and field in ("state", "state_id"):
        # One change may come as `state` and as `state_id`, each under ids of its own (R74). The new value decides:
        # `data` is what the item was when the notice was made, maybe changes later.
        state = _text(activity.get("new_value"))
        since = f"{_text(activity.get('old_value'))}:{_text(data.get('updated_at'))}"
        return Notice(f"state:{item}:{state}:{since}", "state changed", item, state=state, actor=actor)
    return Notice("", f"{event} {action} {field}".strip(), item if event == "issue" else "", actor=actor)


def _second(event: str, body: Mapping[str, Any]) -> Notice:
    data, before = _data(body), _mapping(body.get("previous_attributes"))
    delivery, item = _text(body.get("event_id")), _text(body.get("entity_id")) or _text(data.get("id"))
    actor = _text(data.get("updated_by_id"))
    if event.startswith("workitem.comment"):
        said = _mapping(data.get("comment"))
        text = _text(said.get("comment_stripped"))
        return Notice(
            delivery, event, _text(said.get("issue_id")) or item, comment=text, actor=_text(said.get("actor_id"))
        )
    state = _text(data.get("state_id"))
    moved = "state_id" in before and _text(before["state_id"]) != state
    return Notice(delivery, "state changed" if moved else event, item, state=state if moved else "", actor=actor)


def _object(raw: bytes) -> dict[str, Any]:
    """Read the body; one that is no JSON object but rightly signed says nothing, and looking finds the rest."""
    try:
        value = json.loads(raw)
        json.dumps(value, ensure_ascii=False).encode()  # an unpaired surrogate cannot be stored (R102)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _data(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(body.get("data"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None or value == "None" or isinstance(value, dict | list) else str(value)


def _valid_task(task: str) -> str:
    try:
        return names.task_id(task) if task else ""
    except InvalidInputError:
        return ""
