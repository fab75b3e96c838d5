"""The reply table of the merge call: every status and text that was ever seen has one class."""

from __future__ import annotations

import pytest

from integrations.gitea.client import Response, segment
from integrations.gitea.poll import Approvals, Checks, latest_checks, standing
from integrations.gitea.pulls import UnansweredError, repo_path
from integrations.gitea.replies import Claim, Verdict, classify
from journal.errors import InvalidInputError

CONFLICT = {"Style": "squash", "StdOut": "", "StdErr": "CONFLICT (content)", "Err": {}}


@pytest.mark.proves("R06", "R07", "R15", "E6", "E11")
@pytest.mark.parametrize(
    ("status", "body", "claim", "reason"),
    [
        (200, None, Claim.MERGED, "merged"),
        (201, None, Claim.SCHEDULED, "scheduled"),
        (202, None, Claim.DOUBT, "status_202"),
        (204, None, Claim.DOUBT, "status_204"),
        (301, None, Claim.REFUSED, "redirected"),
        (401, "token is required", Claim.REFUSED, "unauthorized"),
        (403, "", Claim.REFUSED, "forbidden"),
        (404, "The target couldn't be found.", Claim.REFUSED, "not_found"),
        (405, "", Claim.DOUBT, "already_merged"),
        (405, "The PR is already merged", Claim.DOUBT, "already_merged"),
        (405, "Please try again later", Claim.AGAIN, "not_checked_yet"),
        (405, "User not allowed to merge PR", Claim.REFUSED, "not_allowed"),
        (405, "Work in progress PRs cannot be merged", Claim.REFUSED, "work_in_progress"),
        (405, "squash is not allowed an allowed merge style for this repository", Claim.REFUSED, "style_not_allowed"),
        (405, "pull request is not ready to be merged: Not all required status checks", Claim.REFUSED, "not_ready"),
        (409, "head out of date", Claim.REFUSED, "head_out_of_date"),
        (409, "merge push out of date", Claim.AGAIN, "base_moved"),
        (409, "PushRejected with remote message: no", Claim.REFUSED, "push_rejected"),
        (409, "already scheduled to auto merge", Claim.SCHEDULED, "already_scheduled"),
        (409, CONFLICT, Claim.REFUSED, "conflict"),
        (409, CONFLICT | {"StdErr": "fatal: refusing to merge unrelated histories"}, Claim.REFUSED, "unrelated"),
        (409, "", Claim.DOUBT, "unknown_conflict"),
        (409, "gibberish", Claim.DOUBT, "unknown_conflict"),
        (413, "quota", Claim.REFUSED, "quota"),
        (418, "", Claim.DOUBT, "status_418"),
        (422, "Do: Required", Claim.REFUSED, "not_understood"),
        (423, "archived", Claim.REFUSED, "archived"),
        (429, "", Claim.AGAIN, "too_busy"),
        (500, "", Claim.DOUBT, "status_500"),
        (502, None, Claim.DOUBT, "status_502"),
        (503, None, Claim.DOUBT, "status_503"),
    ],
)
def test_each_reply_has_one_class(status: int, body: object, claim: Claim, reason: str) -> None:
    data = {"message": body, "url": ""} if isinstance(body, str) else body
    verdict = classify(Response(status, data))
    assert (verdict.claim, verdict.reason) == (claim, reason)
    assert verdict.ended is (status < 500), "behind a 5xx the server's git may still be at work"


@pytest.mark.proves("E6", "R16")
def test_only_a_request_that_never_left_is_sure_to_have_done_nothing() -> None:
    assert classify(Response(0, sent=False)) == Verdict(Claim.REFUSED, "never_sent")
    assert classify(Response(0)) == Verdict(Claim.DOUBT, "no_answer", ended=False)


@pytest.mark.proves("E11")
def test_only_a_hint_makes_an_overloaded_server_one_to_ask_again() -> None:
    assert classify(Response(503, retry_after_s=7)) == Verdict(Claim.AGAIN, "too_busy", wait_s=7)
    assert classify(Response(503)).claim is Claim.DOUBT


@pytest.mark.proves("R15")
@pytest.mark.parametrize("data", [None, [], "text", 7, {"message": None}, {"message": {"a": 1}}, {"Style": None}])
@pytest.mark.parametrize("status", [0, 200, 405, 409, 500, 999])
def test_no_body_whatever_breaks_the_table(status: int, data: object) -> None:
    assert classify(Response(status, data)).reason


def entry(at: int, context: str, status: str) -> dict[str, object]:
    return {"id": at, "context": context, "status": status}


def test_the_newest_entry_of_a_context_counts_and_warnings_are_green() -> None:
    """By id: entries of one second have no order, and the forge's sum covers one page only (gitea.md 5)."""
    listed = [entry(3, "tests", "success"), entry(1, "tests", "failure"), entry(2, "lint", "warning")]
    assert latest_checks([*listed, entry(4, "slow", "pending")]) == Checks(("lint", "tests"), (), ("slow",))
    assert latest_checks([*listed, entry(9, "tests", "error")]).red == ("tests",)
    assert latest_checks([entry(1, "odd", "a state of the next version")]).pending == ("odd",)


@pytest.mark.parametrize(
    "broken", [{}, {"id": 1, "context": "x"}, None, "x", {"id": "y", "context": "a", "status": "b"}]
)
def test_a_status_that_cannot_be_read_is_no_answer(broken: object) -> None:
    with pytest.raises(UnansweredError):
        latest_checks([broken])


HEAD = "ab" * 20


def review(at: int, who: str, state: str, **more: object) -> dict[str, object]:
    usual = {"commit_id": HEAD, "official": True, "stale": False, "dismissed": False}
    return {"id": at, "user": {"login": who}, "state": state} | usual | more


@pytest.mark.proves("R08")
def test_an_approval_counts_for_the_commit_it_names_and_from_whom_the_forge_counts() -> None:
    said = [
        review(1, "ann", "APPROVED"),
        review(2, "bob", "APPROVED", commit_id="cd" * 20),
        review(3, "cy", "APPROVED", stale=True),
        review(4, "di", "APPROVED", dismissed=True),
        review(5, "passer-by", "APPROVED", official=False),
        review(6, "ann", "COMMENT"),
    ]
    assert standing(said, HEAD) == Approvals(("ann",), ())


def test_a_rejection_stands_over_later_pushes_until_its_author_takes_it_back() -> None:
    old = review(1, "ann", "REQUEST_CHANGES", commit_id="cd" * 20, stale=True)
    assert standing([old], HEAD) == Approvals((), ("ann",))
    assert standing([review(2, "ann", "APPROVED"), old], HEAD) == Approvals(("ann",), ())
    assert standing([old | {"dismissed": True}], HEAD) == Approvals((), ())


@pytest.mark.proves("R100")
def test_names_cannot_leave_their_place_in_a_path() -> None:
    assert segment("feature/a b?c#d%2e") == "feature%2Fa%20b%3Fc%23d%252e"
    assert repo_path("acme/widgets") == "/repos/acme/widgets"
    for name in ("acme", "acme/widgets/x", "../x", "acme/..", "a c/me", "-x/y", ""):
        with pytest.raises(InvalidInputError):
            repo_path(name)
