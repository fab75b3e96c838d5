"""
Twenty notices as forge and tracker send them, whole: every kind that means something to us, with all that stands in it.

Made up from the documented shapes (`gitea_shapes.json`), for one change of one task; a forge sends JSON with two blanks
and no newline at its end, a tracker the shortest that its language gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.doubles import gitea, plane

REPO, BRANCH, TASK, PULL, ITEM = "acme/widgets", "feature/ORCH-7", "ORCH-7", 47, plane.made_up("item 7")
BASE, HEAD, NEWER, LANDED, ZERO = "1a" * 20, "2b" * 20, "3c" * 20, "4d" * 20, "0" * 40
AT, HOST = "2026-03-01T10:00:00Z", "https://forge.invalid"


@dataclass(frozen=True, slots=True)
class Notice:
    """One delivery, and where it says to look."""

    name: str
    source: str
    event: str
    body: bytes
    hint: Mapping[str, Any]

    def headers(self, secret: str = "") -> dict[str, str]:
        """Its headers, signed with the sender's secret or another one."""
        if self.source == "gitea":
            return gitea.signed(self.event, self.body, secret or gitea.SECRET)
        delivery = plane.made_up(self.name)
        return dict(plane.signed(self.event, self.body, delivery, *([secret] if secret else []))[0])


# -- the forge ---------------------------------------------------------------------------------------------------------


def _user(login: str) -> dict[str, Any]:
    texts = dict.fromkeys(("login_name", "language", "location", "website", "description", "full_name", "email"), "")
    counts = dict.fromkeys(("source_id", "followers_count", "following_count", "starred_repos_count"), 0)
    flags = dict.fromkeys(("is_admin", "restricted", "active", "prohibit_login"), False)
    own = {"id": 20 + len(login), "login": login, "username": login, "visibility": "public", "created": AT}
    return own | texts | counts | flags | {"avatar_url": f"{HOST}/avatars/{login}", "html_url": f"{HOST}/{login}"}


def _repository() -> dict[str, Any]:
    own = {"id": 7, "owner": _user("acme"), "name": "widgets", "full_name": REPO, "default_branch": "main"}
    flags = dict.fromkeys(("empty", "fork", "template", "mirror", "archived", "internal", "has_issues"), False)
    urls = {"html_url": f"{HOST}/{REPO}", "clone_url": f"{HOST}/{REPO}.git", "ssh_url": f"ssh://forge.invalid/{REPO}"}
    more = {"private": True, "size": 300, "topics": [], "licenses": None, "created_at": AT, "updated_at": AT}
    return own | flags | urls | more | {"permissions": {"admin": False, "push": True, "pull": True}}


def _commit(sha: str) -> dict[str, Any]:
    person = {"name": "dev", "email": "", "username": "dev"}
    files: dict[str, Any] = {"added": ["gadget.py"], "removed": [], "modified": None, "verification": None}
    url = f"{HOST}/{REPO}/commit/{sha}"
    said = {"id": sha, "message": 'Price the gadgets\n\n\u00fc \u2603 \\ "\n', "url": url, "timestamp": AT}
    return said | {"author": person, "committer": person} | files


def _push(branch: str, before: str, after: str) -> dict[str, Any]:
    commits = [] if after == ZERO else [_commit(after)]
    sent = {"ref": f"refs/heads/{branch}", "before": before, "after": after, "compare_url": HOST, "commits": commits}
    who = {"pusher": _user("merge-bot"), "sender": _user("merge-bot")}
    return sent | {"total_commits": len(commits), "head_commit": commits[0] if commits else None} | who


def _pull(action: str, head: str = HEAD, **more: Any) -> dict[str, Any]:
    def side(ref: str, sha: str) -> dict[str, Any]:
        return {"label": ref, "ref": ref, "sha": sha, "repo_id": 7, "repo": _repository()}

    pull = {
        "id": 140,
        "number": PULL,
        "user": _user("dev"),
        "title": "Price the gadgets",
        "body": TASK,
        "state": "open",
    }
    pull |= {"labels": [], "milestone": None, "assignee": None, "draft": False, "merged": False, "merged_at": None}
    pull |= {"mergeable": False, "merge_commit_sha": None, "merged_by": None, "base": side("main", BASE)}
    pull |= {"head": side(BRANCH, head), "additions": 40, "closed_at": None, "merge_base": BASE, "url": HOST} | more
    sent = {"action": action, "number": PULL, "pull_request": pull, "sender": _user("dev"), "commit_id": ""}
    return sent | {"requested_reviewer": None, "review": None}


def _status(state: str) -> dict[str, Any]:
    told = {
        "commit": _commit(HEAD),
        "context": "ci/tests",
        "description": state,
        "id": 500,
        "sha": HEAD,
        "state": state,
    }
    return told | {"created_at": AT, "updated_at": AT, "target_url": f"{HOST}/runs/9", "sender": _user("ci-bot")}


def _run() -> dict[str, Any]:
    run = {"id": 9, "url": HOST, "display_title": "Price the gadgets", "event": "push", "run_number": 1}
    run |= {"head_sha": HEAD, "head_branch": BRANCH, "status": "completed", "conclusion": "success"}
    run |= {"repository": _repository(), "actor": _user("dev"), "started_at": AT, "completed_at": AT}
    workflow = {"id": "tests.yaml", "name": "tests.yaml", "path": ".gitea/workflows/tests.yaml", "state": "active"}
    return {"action": "completed", "workflow": workflow, "workflow_run": run, "sender": _user("dev")}


def _forge(name: str, event: str, data: dict[str, Any], **hint: Any) -> Notice:
    body = json.dumps(data | {"repository": _repository()}, indent=2, ensure_ascii=False).encode()
    return Notice(f"gitea {name}", "gitea", event, body, {"repo": REPO} | hint)


# -- the tracker -------------------------------------------------------------------------------------------------------


def _first(event: str, action: str, data: dict[str, Any], field: Any = None, new: Any = None, by: str = "") -> Any:
    who = {"id": by or plane.PERSON, "first_name": "", "last_name": "", "email": "", "display_name": "somebody"}
    activity = {"field": field, "new_value": new, "old_value": plane.made_up("state Review") if new else None}
    activity |= {"actor": who, "old_identifier": None, "new_identifier": None}
    ids = {"webhook_id": plane.made_up("hook"), "workspace_id": plane.made_up("workspace")}
    return {"event": event, "action": action, **ids, "data": data, "activity": activity}


def _item(state: str, at: str = AT) -> dict[str, Any]:
    shown = {"id": plane.made_up(f"state {state}"), "name": state, "color": "#46A758", "group": "started"}
    item: dict[str, Any] = {
        "id": ITEM,
        "cycle": None,
        "module": None,
        "labels": [],
        "assignees": [],
        "state": shown,
        "name": "Prices",
    }
    item |= {"sequence_id": 7, "sort_order": 75535.0, "point": None, "is_draft": False, "priority": "medium"}
    return item | {"project": plane.PROJECT, "updated_at": at, "external_id": None, "external_source": None}


def _moved(state: str, field: str, by: str = "") -> Any:
    return _first(
        "issue", "updated", _item(state, f"2026-03-01T1{len(by)}:00:00Z"), field, plane.made_up(f"state {state}"), by
    )


def _second(event: str, data: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    ids = {"delivery_id": plane.made_up("delivery"), "event_id": plane.made_up(f"{event} {data}"), "entity_id": ITEM}
    return {"version": "v2", **ids, "entity_type": "issue", "event": event, "data": data, "previous_attributes": before}


def _second_moved(state: str) -> dict[str, Any]:
    data = {"id": ITEM, "name": "Prices", "state_id": plane.made_up(f"state {state}"), "sequence_id": 7}
    data |= {"sort_order": 75535, "updated_at": AT, "updated_by_id": plane.PERSON, "label_ids": [], "external_id": None}
    return _second("workitem.updated", data, {"state_id": plane.made_up("state Review")})


def _said() -> dict[str, Any]:
    return {"id": plane.made_up("comment"), "comment_html": "<p>/rollback please</p>", "issue": ITEM, "updated_at": AT}


def _second_said() -> dict[str, Any]:
    said = {"id": plane.made_up("comment"), "actor_id": plane.PERSON, "issue_id": ITEM, "comment_stripped": "please"}
    return _second("workitem.comment.created", {"id": ITEM, "name": "Prices", "sequence_id": 7, "comment": said}, {})


def _tracker(name: str, event: str, data: Any, task: str = TASK) -> Notice:
    return Notice(f"plane {name}", "plane", event, json.dumps(data).encode(), {"task": task})


def _all() -> tuple[Notice, ...]:
    at_head: dict[str, Any] = {"branch": BRANCH, "pr": PULL, "head": HEAD}
    closed: Callable[..., dict[str, Any]] = lambda **more: _pull("closed", state="closed", closed_at=AT, **more)  # noqa: E731
    merged = closed(merged=True, merged_at=AT, merge_commit_sha=LANDED, merged_by=_user("merge-bot"))
    approved = _pull("reviewed") | {"review": {"type": "pull_request_review_approved", "content": "Fine."}}
    return (
        _forge("push", "push", _push(BRANCH, BASE, HEAD), branch=BRANCH, head=HEAD),
        _forge("push to main", "push", _push("main", BASE, LANDED), branch="main", head=LANDED),
        _forge("branch deleted", "push", _push(BRANCH, HEAD, ZERO), branch=BRANCH, head=""),
        _forge("opened", "pull_request", _pull("opened"), **at_head),
        _forge("synchronized", "pull_request", _pull("synchronized", NEWER), **at_head | {"head": NEWER}),
        _forge("merged", "pull_request", merged, **at_head),
        _forge("closed", "pull_request", closed(), **at_head),
        _forge("approved", "pull_request_approved", approved, **at_head),
        *(_forge(f"status {s}", "status", _status(s), head=HEAD) for s in ("pending", "success", "failure")),
        _forge("workflow run", "workflow_run", _run(), branch=BRANCH, head=HEAD),
        _tracker("v1 created", "issue", _first("issue", "created", _item("Todo"))),
        _tracker("v1 approved", "issue", _moved("Approved", "state_id")),
        _tracker("v1 approved by the API", "issue", _moved("Approved", "state", plane.BOT), task=""),  # our own echo
        _tracker("v1 confirmed", "issue", _moved("Confirm Deploy", "state_id")),
        _tracker("v1 comment", "issue_comment", _first("issue_comment", "created", _said()), task=""),
        _tracker("v2 approved", "workitem.updated", _second_moved("Approved")),
        _tracker("v2 confirmed", "workitem.updated", _second_moved("Confirm Deploy")),
        _tracker("v2 comment", "workitem.comment.created", _second_said()),
    )


NOTICES = _all()
