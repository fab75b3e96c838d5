"""
What a reply to the merge call claims: the forge's answers, classified in one place (gitea.md 3.3; R06, R07, R15).

One status carries many meanings and a reply proves nothing, so a class only says what may be done next; whether the
change landed is asked of git in every case (E6).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from integrations.gitea.client import Response


class Claim(StrEnum):
    """What may follow from a reply."""

    MERGED = "merged"  # it says that it did it
    SCHEDULED = "scheduled"  # it says that it will do it some time: never asked for (E7), and never an end
    AGAIN = "again"  # it says that it could not yet: wait, look, send again (E11)
    REFUSED = "refused"  # it says no, and gives a reason
    DOUBT = "doubt"  # it says nothing that can be relied upon


class Verdict(NamedTuple):
    """A classified reply."""

    claim: Claim
    reason: str  # a constant name, for evidence
    ended: bool = True  # the server's work on it is over; False: the branch may still move (PROTOCOL 4.7)
    wait_s: int | None = None  # the far side's own hint


_SAID: dict[int, tuple[tuple[str, Claim, str], ...]] = {
    405: (
        ("try again later", Claim.AGAIN, "not_checked_yet"),
        ("already merged", Claim.DOUBT, "already_merged"),
        ("work in progress", Claim.REFUSED, "work_in_progress"),
        ("merge style", Claim.REFUSED, "style_not_allowed"),
        ("not ready", Claim.REFUSED, "not_ready"),
        ("sign", Claim.REFUSED, "cannot_sign"),
        ("", Claim.REFUSED, "not_allowed"),
    ),
    409: (
        ("head out of date", Claim.REFUSED, "head_out_of_date"),
        ("push out of date", Claim.AGAIN, "base_moved"),
        ("already scheduled", Claim.SCHEDULED, "already_scheduled"),
        ("unrelated", Claim.REFUSED, "unrelated"),
        ("pushrejected", Claim.REFUSED, "push_rejected"),
        ("push rejected", Claim.REFUSED, "push_rejected"),
        ("conflict", Claim.REFUSED, "conflict"),
        ("", Claim.DOUBT, "unknown_conflict"),  # R15: never a wrong "send it back to review"
    ),
}
"""Texts by status, asked in this order; only hints, since the forge may word them anew in any version."""
_REFUSALS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",  # or closed unmerged, or no access
    413: "quota",
    422: "not_understood",
    423: "archived",
}


def classify(reply: Response) -> Verdict:
    """Say what a reply to `POST .../merge` claims; pure and total."""
    status = reply.status
    if not reply.sent:
        return Verdict(Claim.REFUSED, "never_sent")
    if status == 0:
        return Verdict(Claim.DOUBT, "no_answer", ended=False)
    if status == 200:
        return Verdict(Claim.MERGED, "merged")
    if status == 201:
        return Verdict(Claim.SCHEDULED, "scheduled")
    if status == 429 or (status == 503 and reply.retry_after_s is not None):
        return Verdict(Claim.AGAIN, "too_busy", wait_s=reply.retry_after_s)
    if status in _SAID:
        return _by_text(status, _words(reply.data) or reply.text, reply.retry_after_s)
    if status in _REFUSALS:
        return Verdict(Claim.REFUSED, _REFUSALS[status])
    if 300 <= status < 400:
        return Verdict(Claim.REFUSED, "redirected")  # a renamed repository: nothing behind it was reached
    return Verdict(Claim.DOUBT, f"status_{status}", ended=status < 500)


def _by_text(status: int, said: str, wait_s: int | None) -> Verdict:
    if status == 405 and not said.strip():
        return Verdict(Claim.DOUBT, "already_merged")  # before 1.25, and Forgejo
    lowered = said.lower()
    claim, reason = next((claim, reason) for text, claim, reason in _SAID[status] if text in lowered)
    return Verdict(claim, reason, wait_s=wait_s)


def _words(data: Any) -> str:
    """The words of a body: its message, or what git said in the object that a conflict answers with."""
    if not isinstance(data, dict):
        return ""
    if "StdErr" in data or "Style" in data:
        said = f"{data.get('Err') or ''} {data.get('StdErr') or ''}"
        return said if "unrelated" in said.lower() or "reject" in said.lower() else f"conflict {said}"
    return str(data.get("message") or "")
