"""
A double of the forge: its API over a real bare repository, which `git http-backend` serves, with its flaws as switches.

Main moves first, the record of the pull request later, webhooks last, each of them separately breakable. Calls are
counted, so that "no second merge" can be read off both this side and `git log`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.doubles.gitea_git import ConflictError, Merging, NothingToCommitError, PushRefusedError
from tests.doubles.serving import git_backend, hang_up
from tests.widgets import run_git

TOKEN = "made-up-token"
SECRET = "made-up-secret"
ACCOUNT = "merge-bot"
LATER = "Please try again later"

Answer = tuple[Any, ...]
"""Status, body, and headers where there are any."""


@dataclass(slots=True)
class PullRecord:
    """A row of the forge's database: what it believes, not what is."""

    number: int
    branch: str
    base: str = "main"
    state: str = "open"
    merged: bool = False
    landed: str | None = None
    title: str = "A change"


@dataclass(slots=True)
class Faults:
    """What goes wrong; everything off is a forge that works."""

    checking: int = 0  # answer 405 "try again later" so often; -1 = for ever
    instead: list[Answer] = field(default_factory=list)  # answers given without merging, one a call
    always: Answer | None = None  # the same for every call
    answer: Answer | None = None  # given instead of 200, after merging
    drop: str = ""  # hang up "before" merging, "ref" after main moved and before the record, "after" everything
    hold: asyncio.Event | None = None  # merge only once this is set, whether or not the caller still listens
    cut: bool = False  # hang up as soon as a call is there; the merge goes on
    record: bool = True  # the record follows the branch; off: it stays open until `catch_up`
    hooks: bool = True
    names_landed: bool = True  # off: a merged record without its id (R21)
    api_head: dict[int, str] = field(default_factory=dict)  # what the API believes a head to be (R09)
    before_merge: Callable[[], object] | None = None  # somebody else is faster
    deaf: bool = False  # the API answers nothing but 502
    git_down: bool = False  # the repository cannot be fetched


@dataclass(slots=True)
class Gitea:
    """The forge; an ASGI application."""

    repository: Path  # the bare repository owner/name.git
    repo: str = "acme/widgets"
    faults: Faults = field(default_factory=Faults)
    pulls: dict[int, PullRecord] = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)  # method, path below the repository, body
    answers: list[tuple[str, Answer]] = field(default_factory=list)  # path and answer, to be checked for their shape
    deliveries: list[tuple[dict[str, str], bytes]] = field(default_factory=list)  # headers and body, in sending order
    fetching: int = 0  # requests for the repository that are answered right now
    most_fetches: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)  # a merge call has come
    merging: set[asyncio.Task[Any]] = field(default_factory=set)  # what goes on, with or without its caller

    # -- what people do -----------------------------------------------------------------------------------------------

    def git(self, *argv: str) -> str:
        return run_git(self.repository, *argv)

    def open_pull(self, branch: str, base: str = "main") -> int:
        """Open a pull request; numbers begin at 41, so that nobody takes one for an index."""
        number = 41 + len(self.pulls)
        self.pulls[number] = PullRecord(number, branch, base)
        self.follow(number)
        self._hook("pull_request", self._pull_event(number, "opened"))
        return number

    def follow(self, number: int) -> None:
        """Somebody pushed to the head branch: while open, the pull request's own ref follows."""
        if self.pulls[number].state == "open":
            self.git("update-ref", f"refs/pull/{number}/head", f"refs/heads/{self.pulls[number].branch}")

    def merge(self, number: int, style: str = "merge", message: str = "Merged by hand") -> str:
        """Merge as a person does on the forge's page."""
        new = self._move(number, style, message)
        self.catch_up(number, new)
        return new

    def faults_of(self, number: int) -> Faults:
        """What goes wrong with one call to merge; asked once, when the call comes."""
        del number
        return self.faults

    def catch_up(self, number: int, landed: str, *, named: bool = True) -> None:
        """What the post-receive hook does: the record, then the webhooks."""
        pull = self.pulls[number]
        pull.merged, pull.state = True, "closed"
        pull.landed = landed if named and self.faults.names_landed else None
        self._hook("push", {"ref": f"refs/heads/{pull.base}", "before": "0" * 40, "after": landed})
        self._hook("pull_request", self._pull_event(number, "closed"))

    def add_status(self, sha: str, context: str, state: str) -> None:
        """CI reports."""
        entry = {"id": len(self.statuses) + 1, "context": context, "status": state, "description": "", "target_url": ""}
        self.statuses.append({"sha": sha, **entry})
        self._hook("status", {"sha": sha, "context": context, "state": state, "id": entry["id"]})

    def add_review(self, who: str, state: str, sha: str, **more: Any) -> None:
        """Somebody reviews."""
        review = {"id": len(self.reviews) + 1, "user": {"login": who}, "state": state, "commit_id": sha}
        self.reviews.append(review | {"official": True, "stale": False, "dismissed": False} | more)

    def merge_calls(self) -> list[dict[str, Any]]:
        """The bodies of all merge calls."""
        return [body for method, path, body in self.calls if method == "POST" and path.endswith("/merge")]

    # -- the API ------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = bytearray()
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event.get("more_body"):
                break
        authorized = (b"authorization", f"token {TOKEN}".encode()) in scope["headers"]
        if not scope["path"].startswith("/api/v1/"):
            await self._git(scope, bytes(body), authorized, send)
            return
        path = scope["raw_path"].decode().removeprefix("/api/v1").removeprefix(f"/repos/{self.repo}")
        data = json.loads(bytes(body)) if body else None
        self.calls.append((scope["method"], path, data))
        answer = await self._answer(scope, path, data, send) if authorized else (401, {"message": "token is required"})
        if answer is None:
            hang_up(send)
            return
        self.answers.append((path, answer))
        await _respond(send, answer)

    async def _git(self, scope: dict[str, Any], body: bytes, authorized: bool, send: Any) -> None:
        if not authorized or self.faults.git_down:
            await _respond(send, (503 if authorized else 401, {"message": "no"}))
            return
        self.fetching += 1
        self.most_fetches = max(self.most_fetches, self.fetching)
        status, headers, content = await git_backend(self.repository.parent.parent, scope, body)
        self.fetching -= 1
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: dict[str, Any], path: str, data: Any, send: Any) -> Answer | None:
        if self.faults.deaf:
            return 502, None
        for pattern, handler in ROUTES.items():
            method, _, expression = pattern.partition(" ")
            if method == scope["method"] and (match := re.fullmatch(expression, path)):
                if handler is Gitea.post_merge:
                    return await self.post_merge(int(match[1]), data)
                answer: Answer = handler(self, *match.groups(), *([data] if data is not None else []))
                return _paged(answer, scope)
        return 404, {"message": "The target couldn't be found.", "errors": []}

    async def post_merge(self, number: int, data: dict[str, Any]) -> Answer | None:
        """The merge call. The caller's patience is not asked for: what has begun is finished."""
        faults = self.faults_of(number)
        task = asyncio.create_task(self._post_merge(number, data, faults))
        self.merging.add(task)
        self.reached.set()
        if faults.cut:
            return None
        task.add_done_callback(self.merging.discard)
        return await asyncio.shield(task)

    async def _post_merge(self, number: int, data: dict[str, Any], faults: Faults) -> Answer | None:
        if faults.before_merge:
            act, faults.before_merge = faults.before_merge, None
            act()
        if faults.hold:
            await faults.hold.wait()
        if faults.drop == "before":
            return None
        if faults.checking:
            faults.checking -= 1
            return 405, {"message": LATER}
        if faults.always or faults.instead:
            return faults.always or faults.instead.pop(0)
        if refusal := self._refusal(number, data):
            return refusal
        message = f"{data.get('MergeTitleField', '')}\n\n{data.get('MergeMessageField', '')}"
        try:
            new = self._move(number, data["Do"], message)
        except PushRefusedError:
            return 409, {"message": "merge push out of date"}
        except ConflictError:
            ancestor = self.git("merge-base", self.head(number), self.pulls[number].base) == self.head(number)
            return (
                (405, {"message": LATER}) if ancestor else (409, {"Style": data["Do"], "StdErr": "CONFLICT", "Err": {}})
            )
        except NothingToCommitError:
            return 500, {"message": ""}
        if faults.drop == "ref":
            return None
        if faults.record:
            self.catch_up(number, new, named=faults.names_landed)
        return None if faults.drop == "after" else faults.answer or (200, None)

    def _refusal(self, number: int, data: dict[str, Any]) -> Answer | None:
        pull = self.pulls.get(number)
        if pull is None or (pull.state == "closed" and not pull.merged):
            return 404, {"message": "The target couldn't be found.", "errors": []}
        if pull.merged:
            return 405, {"message": ""}
        if pull.title.startswith("WIP:"):
            return 405, {"message": "Work in progress PRs cannot be merged"}
        if data.get("head_commit_id") not in (None, "", self.head(number)):
            return 409, {"message": "head out of date"}
        return None

    def head(self, number: int) -> str:
        return self.git("rev-parse", f"refs/pull/{number}/head")

    def _move(self, number: int, style: str, message: str) -> str:
        pull = self.pulls[number]
        step = Merging(self.repository, pull.base, self.head(number), self.git("rev-parse", pull.base))
        new = step.made(style, message, number)
        step.push(new)
        return new

    # -- the smaller calls --------------------------------------------------------------------------------------------

    def get_pull(self, number: str) -> Answer:
        if int(number) not in self.pulls:
            return 404, {"message": "The target couldn't be found.", "errors": []}
        return 200, self.pull_json(int(number))

    def get_pulls(self) -> Answer:
        return 200, [self.pull_json(number) for number in sorted(self.pulls)]

    def get_pull_by_branches(self, base: str, head: str) -> Answer:
        found = [n for n, pull in self.pulls.items() if (pull.base, pull.branch) == (unquote(base), unquote(head))]
        return (200, self.pull_json(min(found))) if found else (404, {"message": "no pull request"})

    def pull_json(self, number: int) -> dict[str, Any]:
        pull = self.pulls[number]
        exists = self.git("for-each-ref", f"refs/heads/{pull.branch}")
        ref = pull.branch if exists else f"refs/pull/{number}/head"
        head = self.faults.api_head.get(number) or self.git("rev-parse", ref)
        return {
            "number": number,
            "title": pull.title,
            "state": pull.state,
            "merged": pull.merged,
            "merge_commit_sha": pull.landed,
            "mergeable": pull.state == "open" and not self.faults.checking,
            "draft": pull.title.startswith("WIP:"),
            "head": {"label": ref, "ref": ref, "sha": head},
            "base": {"label": pull.base, "ref": pull.base, "sha": self.git("rev-parse", pull.base)},
        }

    def delete_branch(self, branch: str) -> Answer:
        if not self.git("for-each-ref", f"refs/heads/{unquote(branch)}"):
            return 404, {"message": "branch does not exist"}
        self.git("update-ref", "-d", f"refs/heads/{unquote(branch)}")
        return 204, None

    def get_statuses(self, sha: str) -> Answer:
        return 200, [_without_sha(entry) for entry in reversed(self.statuses) if entry["sha"] == sha]

    def post_status(self, sha: str, data: dict[str, Any]) -> Answer:
        self.add_status(sha, data["context"], data["state"])
        self.statuses[-1] |= {name: data.get(name, "") for name in ("description", "target_url")}
        return 201, _without_sha(self.statuses[-1])

    def get_reviews(self, number: str) -> Answer:
        return 200, self.reviews

    def get_comments(self, number: str) -> Answer:
        return 200, [comment for comment in self.comments if comment["issue_url"] == f"/issues/{number}"]

    def post_comment(self, number: str, data: dict[str, Any]) -> Answer:
        self.add_comment(int(number), ACCOUNT, data["body"])
        return 201, self.comments[-1]

    def add_comment(self, number: int, who: str, body: str) -> None:
        entry = {"id": 700 + len(self.comments), "user": {"login": who}, "body": body}
        self.comments.append(entry | {"issue_url": f"/issues/{number}"})

    def patch_comment(self, comment: str, data: dict[str, Any]) -> Answer:
        found = next(entry for entry in self.comments if entry["id"] == int(comment))
        found["body"] = data["body"]
        return 200, found

    def get_user(self) -> Answer:
        return 200, {"id": 30, "login": ACCOUNT}

    # -- webhooks -----------------------------------------------------------------------------------------------------

    def _pull_event(self, number: int, action: str) -> dict[str, Any]:
        return {"action": action, "number": number, "pull_request": self.pull_json(number), "commit_id": ""}

    def _hook(self, event: str, data: dict[str, Any]) -> None:
        if self.faults.hooks:
            body = json.dumps(data | {"repository": {"full_name": self.repo}}, indent=2).encode()
            self.deliveries.append((signed(event, body), body))


ROUTES: dict[str, Callable[..., Any]] = {
    r"POST /pulls/(\d+)/merge": Gitea.post_merge,
    r"GET /pulls/(\d+)/reviews": Gitea.get_reviews,
    r"GET /pulls/(\d+)": Gitea.get_pull,
    r"GET /pulls/([^/]+)/([^/]+)": Gitea.get_pull_by_branches,
    r"GET /pulls": Gitea.get_pulls,
    r"DELETE /branches/(.+)": Gitea.delete_branch,
    r"GET /commits/([0-9a-f]+)/statuses": Gitea.get_statuses,
    r"GET /statuses/([0-9a-f]+)": Gitea.get_statuses,
    r"POST /statuses/([0-9a-f]+)": Gitea.post_status,
    r"GET /issues/(\d+)/comments": Gitea.get_comments,
    r"POST /issues/(\d+)/comments": Gitea.post_comment,
    r"PATCH /issues/comments/(\d+)": Gitea.patch_comment,
    r"GET /user": Gitea.get_user,
}


def signed(event: str, body: bytes, secret: str = SECRET) -> dict[str, str]:
    """The headers of a delivery."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Gitea-Delivery": str(uuid.uuid4()),
        "X-Gitea-Event": event,
        "X-Gitea-Signature": digest,
        "X-Hub-Signature": f"sha1={hmac.new(secret.encode(), body, hashlib.sha1).hexdigest()}",
        "X-Hub-Signature-256": f"sha256={digest}",
    }


def _without_sha(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "sha"}


def _paged(answer: Answer, scope: dict[str, Any]) -> Answer:
    """Lists come in pages, except comments, which have none."""
    status, data, *_ = answer
    query = parse_qs(scope["query_string"].decode())
    if not isinstance(data, list) or "page" not in query or scope["path"].endswith("/comments"):
        return answer
    page, limit = int(query["page"][0]), min(int(query["limit"][0]), 50)
    return status, data[(page - 1) * limit : page * limit]


async def _respond(send: Any, answer: Answer) -> None:
    status, data, *more = answer
    headers = [(b"content-type", b"application/json"), *(more[0] if more else [])]
    body = b"" if data is None else data if isinstance(data, bytes) else json.dumps(data).encode()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
