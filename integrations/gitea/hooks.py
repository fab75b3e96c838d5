"""
Webhooks: an authenticated hint that something is worth reading again, never a fact (class G; gitea.md 6).

Pure: bytes and headers in, a hint out. Unknown events are no error: the forge sends kinds that nobody asked for.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from journal import names
from journal.errors import InvalidInputError

_HEX = re.compile(r"[0-9a-f]{64}\Z")
_SIGNATURES = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature")
_DELIVERIES = ("x-gitea-delivery", "x-forgejo-delivery", "x-gogs-delivery", "x-github-delivery")
_EVENTS = ("x-gitea-event", "x-forgejo-event", "x-gogs-event", "x-github-event")
_DELIVERY = re.compile(r"[A-Za-z0-9-]{1,64}\Z")


class Change(StrEnum):
    """What may have changed."""

    PULL_REQUEST = "pull_request"  # opened, reopened, edited: read it again
    HEAD_CHANGED = "head_changed"
    MERGED = "merged"
    CLOSED = "closed"
    REVIEW = "review"
    STATUS = "status"
    PUSH = "push"  # a branch moved; the base's too, after a merge


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to look: the tasks of this repository that have this branch, this pull request, or this head."""

    repo: str
    change: Change
    branch: str = ""
    pr: int = 0
    sha: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One authenticated delivery."""

    id: str  # of the exact repeat; "" when the header is missing or odd
    body_id: str  # of the content: a replay by hand carries a new delivery id and the same body (gitea.md 6.2)
    event: str
    hint: Hint | None  # None: a kind nobody here has use for; answered 2xx all the same


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """
    Whether the bytes that came were signed with the secret: HMAC-SHA256, compared in constant time (R71, R72).

    Every form of the signature that is present must fit, and one must be; SHA-1 alone is none. An empty secret
    authenticates nothing.
    """
    if not secret:
        return False
    given = _lowered(headers)
    plain = [given[name] for name in _SIGNATURES if name in given]
    prefixed = [given["x-hub-signature-256"]] if "x-hub-signature-256" in given else []
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    fits = [_fits(text, wanted) for text in plain]
    fits += [text.startswith("sha256=") and _fits(text[7:], wanted) for text in prefixed]
    return bool(fits) and all(fits)


def read(headers: Mapping[str, str], body: bytes) -> Delivery:
    """
    Read a delivery whose signature was checked.

    Raises:
        InvalidInputError: The body is no JSON object, or names what cannot be named (R10: full commit ids only).
    """
    given = _lowered(headers)
    event = next((given[name] for name in _EVENTS if name in given), "")
    sent = next((given[name] for name in _DELIVERIES if name in given), "")
    delivery = sent if _DELIVERY.match(sent) else ""
    data = _object(body)
    try:
        hint = _hint(event, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"webhook '{names.shown(event)}'"
        raise InvalidInputError(what=what, why="a field that it must have is missing") from error
    return Delivery(delivery, hashlib.sha256(event.encode() + b"\0" + body).hexdigest(), event, hint)


def _fits(text: str, wanted: str) -> bool:
    # compare_digest refuses text that is not ASCII, so the form is checked first.
    return bool(_HEX.match(text)) and hmac.compare_digest(text, wanted)


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _object(body: bytes) -> dict[str, Any]:
    # Keys that stand twice and odd spacing are the sender's business: the signature covers the bytes (R72).
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(what="webhook body", why="not JSON in UTF-8") from error
    if not isinstance(data, dict):
        raise InvalidInputError(what="webhook body", why="not a JSON object")
    return data


def _hint(event: str, data: dict[str, Any]) -> Hint | None:
    match event:
        case "push":
            ref = str(data["ref"])
            if not ref.startswith("refs/heads/"):
                return None
            return Hint(_repo(data), Change.PUSH, names.branch(ref.removeprefix("refs/heads/")), 0, _sha(data["after"]))
        case "pull_request":
            return _pull_hint(data, _change(data))
        case "pull_request_approved" | "pull_request_rejected" | "pull_request_comment":
            return _pull_hint(data, Change.REVIEW)
        case "status":
            return Hint(_repo(data), Change.STATUS, sha=_sha(data["sha"]))
        case "workflow_run":
            run = data["workflow_run"]
            head = run.get("head_branch")
            return Hint(_repo(data), Change.STATUS, names.branch(str(head)) if head else "", 0, _sha(run["head_sha"]))
        case "action_run_success" | "action_run_failure" | "action_run_recover":  # Forgejo has no `status` event
            run = data["run"]
            return Hint(_repo(run), Change.STATUS, sha=_sha(run["commit_sha"]))
        case _:
            return None


def _pull_hint(data: dict[str, Any], change: Change) -> Hint:
    pull = data["pull_request"]
    branch = names.branch(str(pull["head"]["ref"]))
    return Hint(_repo(data), change, branch, _number(data), _sha(pull["head"]["sha"]))


def _change(data: dict[str, Any]) -> Change:
    action = data["action"]
    if action == "closed":
        return Change.MERGED if data["pull_request"].get("merged") is True else Change.CLOSED
    return Change.HEAD_CHANGED if action in ("synchronized", "synchronize") else Change.PULL_REQUEST


def _repo(data: dict[str, Any]) -> str:
    return names.repository(str(data["repository"]["full_name"]))


def _number(data: dict[str, Any]) -> int:
    number = data["number"] if "number" in data else data["pull_request"]["number"]
    return names.number(number, "number of a pull request")


def _sha(value: Any) -> str:
    """A full commit id; a branch that was deleted is at none."""
    sha = names.commit_id(str(value))
    return "" if set(sha) == {"0"} else sha
