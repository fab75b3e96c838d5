"""Webhooks: whose they are, and what they hint at."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from integrations.gitea.hooks import Change, Hint, is_signed, read
from journal.errors import InvalidInputError
from tests.doubles.gitea import SECRET, signed

HEAD, MAIN, ZERO = "ab" * 20, "cd" * 20, "0" * 40
REPO = {"repository": {"full_name": "acme/widgets"}}
PULL = {"number": 41, "merged": False, "head": {"ref": "feature/1", "sha": HEAD}, "base": {"ref": "main"}}


def pull_event(action: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "number": 41, "pull_request": PULL | more} | REPO


KINDS: list[tuple[str, dict[str, Any], Hint | None]] = [
    (
        "push",
        {"ref": "refs/heads/feature/1", "after": HEAD} | REPO,
        Hint("acme/widgets", Change.PUSH, "feature/1", 0, HEAD),
    ),
    ("push", {"ref": "refs/heads/main", "after": MAIN} | REPO, Hint("acme/widgets", Change.PUSH, "main", 0, MAIN)),
    ("push", {"ref": "refs/heads/feature/1", "after": ZERO} | REPO, Hint("acme/widgets", Change.PUSH, "feature/1")),
    ("push", {"ref": "refs/tags/v1", "after": HEAD} | REPO, None),
    ("pull_request", pull_event("opened"), Hint("acme/widgets", Change.PULL_REQUEST, "feature/1", 41, HEAD)),
    ("pull_request", pull_event("synchronized"), Hint("acme/widgets", Change.HEAD_CHANGED, "feature/1", 41, HEAD)),
    ("pull_request", pull_event("closed"), Hint("acme/widgets", Change.CLOSED, "feature/1", 41, HEAD)),
    ("pull_request", pull_event("closed", merged=True), Hint("acme/widgets", Change.MERGED, "feature/1", 41, HEAD)),
    ("pull_request_approved", pull_event("reviewed"), Hint("acme/widgets", Change.REVIEW, "feature/1", 41, HEAD)),
    ("pull_request_rejected", pull_event("reviewed"), Hint("acme/widgets", Change.REVIEW, "feature/1", 41, HEAD)),
    ("status", {"sha": HEAD, "state": "success"} | REPO, Hint("acme/widgets", Change.STATUS, sha=HEAD)),
    (
        "workflow_run",
        {"action": "completed", "workflow_run": {"head_sha": HEAD, "head_branch": "feature/1"}} | REPO,
        Hint("acme/widgets", Change.STATUS, "feature/1", 0, HEAD),
    ),
    (
        "action_run_success",
        {"run": {"commit_sha": HEAD, "repository": {"full_name": "acme/widgets"}}},
        Hint("acme/widgets", Change.STATUS, sha=HEAD),
    ),
    ("issues", {"action": "opened"} | REPO, None),
    ("a kind of the next version", {}, None),
]


def body_of(data: dict[str, Any]) -> bytes:
    return json.dumps(data, indent=2).encode()


@pytest.mark.parametrize(("event", "data", "hint"), KINDS)
def test_each_kind_hints_at_where_to_look(event: str, data: dict[str, Any], hint: Hint | None) -> None:
    body = body_of(data)
    headers = signed(event, body)
    assert is_signed(headers, body, SECRET)
    delivery = read(headers, body)
    assert delivery.hint == hint and delivery.event == event and len(delivery.id) == 36


@pytest.mark.proves("R71", "R72")
@pytest.mark.parametrize("at", [0, 1, 17, -1])
def test_a_delivery_of_which_one_byte_was_changed_is_refused(at: int) -> None:
    for event, data, _ in KINDS:
        body = bytearray(body_of(data))
        headers = signed(event, bytes(body))
        body[at if at < len(body) else -1] ^= 1
        assert not is_signed(headers, bytes(body), SECRET)


@pytest.mark.proves("R71")
@pytest.mark.parametrize(
    "text",
    ["", "0" * 64, "0" * 63, "g" * 64, "ß" * 64, "\uff21" * 64, "sha256=", "sha256=" + "0" * 64, "abc", " "],
)
@pytest.mark.parametrize("name", ["X-Gitea-Signature", "X-Hub-Signature-256"])
def test_a_signature_that_does_not_fit_is_refused_in_every_form(name: str, text: str) -> None:
    body = body_of(REPO)
    assert not is_signed({name: text}, body, SECRET)
    assert not is_signed(signed("push", body) | {name: text}, body, SECRET), "one that fits does not excuse another"


@pytest.mark.proves("R71", "R72")
def test_no_signature_and_no_secret_authenticate_nothing() -> None:
    body = body_of(REPO)
    assert not is_signed({}, body, SECRET)
    assert not is_signed({"X-Hub-Signature": signed("push", body)["X-Hub-Signature"]}, body, SECRET), "SHA-1 alone"
    assert not is_signed(signed("push", body, secret=""), body, "")
    assert not is_signed(signed("push", body, secret="another"), body, SECRET)


@pytest.mark.proves("R72")
def test_each_form_alone_is_enough_whatever_the_case_of_its_name() -> None:
    body = body_of(REPO)
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    for name in ("x-gitea-signature", "X-Forgejo-Signature", "X-GOGS-SIGNATURE"):
        assert is_signed({name: digest}, body, SECRET)
    assert is_signed({"x-hub-signature-256": f"sha256={digest}"}, body, SECRET)
    assert not is_signed({"x-hub-signature-256": digest}, body, SECRET)
    assert not is_signed({"x-gitea-signature": digest.upper()}, body, SECRET)


@pytest.mark.proves("R72")
def test_the_bytes_are_signed_and_not_their_meaning() -> None:
    """Odd spacing, escapes and a key that stands twice are the sender's business."""
    ref, repo = rb'"ref":"refs\/heads\/main"', rb'"repository":{"full_name":"acme/widg\u0065ts"}'
    body = b'{ %s,  "after":"%s", "after" : "%s",%s}\n' % (ref, HEAD.encode(), MAIN.encode(), repo)
    headers = signed("push", body)
    assert is_signed(headers, body, SECRET)
    assert read(headers, body).hint == Hint("acme/widgets", Change.PUSH, "main", 0, MAIN)
    assert not is_signed(headers, json.dumps(json.loads(body)).encode(), SECRET)


@pytest.mark.proves("R69")
def test_a_replay_by_hand_has_another_delivery_id_and_the_same_body() -> None:
    body = body_of(pull_event("closed"))
    first, again = read(signed("pull_request", body), body), read(signed("pull_request", body), body)
    assert first.id != again.id and first.body_id == again.body_id
    assert read(signed("push", body_of(KINDS[0][1])), body_of(KINDS[0][1])).body_id != first.body_id


@pytest.mark.proves("R10", "R100", "R101")
@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("push", {"ref": "refs/heads/main", "after": HEAD[:8]} | REPO),
        ("push", {"ref": "refs/heads/--upload-pack=x", "after": HEAD} | REPO),
        ("push", {"ref": "refs/heads/main", "after": HEAD, "repository": {"full_name": "../x"}}),
        ("push", {"ref": "refs/heads/main", "after": HEAD}),
        ("push", {"after": HEAD} | REPO),
        ("status", {"sha": "HEAD"} | REPO),
        ("pull_request", pull_event("opened") | {"number": "41"}),
        ("pull_request", pull_event("opened") | {"number": True}),
        ("pull_request", pull_event("opened") | {"number": -1}),
        ("pull_request", pull_event("opened") | {"pull_request": None}),
        ("pull_request", pull_event("opened", head=None)),
    ],
)
def test_what_cannot_be_named_is_refused(event: str, data: dict[str, Any]) -> None:
    body = body_of(data)
    with pytest.raises(InvalidInputError):
        read(signed(event, body), body)


@pytest.mark.proves("R101")
@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff", b'{"a":"\\ud800"}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read(signed("push", body), body)


def test_a_delivery_id_that_is_odd_is_none() -> None:
    body = body_of(REPO)
    for odd in ("", "a\nb", "x" * 65, "../x"):
        assert read(signed("issues", body) | {"X-Gitea-Delivery": odd}, body).id == ""
