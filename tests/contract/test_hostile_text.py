"""One sweep of hostile text over every entrance: refused or kept as it came, never a bug, never on a terminal."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from integrations.cli.app import main
from integrations.cli.init import TEMPLATE
from integrations.gitea.client import GiteaClient
from integrations.gitea.poll import read_approvals, read_checks
from integrations.gitea.pulls import UnansweredError, read_pull
from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.plane.client import PlaneClient
from integrations.plane.poll import PlaneItems
from journal.errors import JournalError
from journal.ports import Subject
from tests.browser.scenes import Scripted
from tests.builders import StandingClock
from tests.conftest import Counts
from tests.contract.http_service import AUTH, LOCAL, OPERATOR, a_service
from tests.contract.test_plane import CONFIG
from tests.contract.test_signed_notices import door
from tests.doubles import gitea, plane
from tests.doubles.notices import NOTICES
from tests.doubles.serving import served
from tests.hostile import TEXTS, UNPRINTABLE, VALUES, places, spoiled
from tests.lived import lived

T = TypeVar("T")
NEW = {"task": "T-1", "repo": "acme/widgets", "branch": "f", "base": "main", "head": "ab" * 20, "pr": 1, "actor": "a"}


def dumped(data: Any) -> bytes:
    """As bytes that a sender could send: what JSON does not know is written all the same."""
    return json.dumps(data).encode()


# -- HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R96", "R100", "R101", "R102")
async def test_no_body_and_no_query_is_answered_by_a_bug_and_what_is_kept_is_shown_escaped(
    tmp_path: Path, counts: Counts
) -> None:
    said: Counter[int] = Counter()
    async with a_service(tmp_path, make=Scripted) as service:
        transport = httpx.ASGITransport(app=create_app(service, Tokens(OPERATOR, LOCAL)), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://journal", headers=AUTH) as client:
            assert (await client.post("/tasks", json=NEW | {"task": "T-0"})).status_code == 201
            verbs: dict[str, dict[str, Any]] = {
                "/tasks": NEW,
                "/tasks/T-0/pause": {"reason": "r", "actor": "a"},
                "/tasks/T-0/resume": {"reason": "r", "actor": "a"},
                "/tasks/T-0/reopen": {"reason": "r", "stage": "review", "head": "cd" * 20},
                "/tasks/T-0/settle": {"reason": "r", "as": "applied", "evidence": "e"},
                "/tasks/T-0/advance?wait=0": {"expect": "nowhere", "actor": "a"},
                "/transition-lease/release?work_item=T-0": {"reason": "r", "actor": "a"},
            }
            for path, body in verbs.items():
                for what, sent in spoiled(body, counts.of(5)):
                    answer = await client.post(path, content=dumped(sent))
                    said[answer.status_code] += 1
                    assert answer.status_code < 500, (path, what, answer.text)
                    assert not UNPRINTABLE.search(answer.text), (path, what)
            for text in TEXTS.values():
                sent_text = text[:5000].encode("utf-8", "replace").decode()
                for path in ("/", "/queue", "/tasks", "/tasks/T-0/events", "/queue/diff"):
                    for name in ("repo", "at", "q", "stage", "cursor", "limit", "after", "from", "to"):
                        answer = await client.get(path, params={name: sent_text})
                        assert answer.status_code < 500, (path, name, text[:30])
                        page = answer.headers["content-type"].startswith("text/html")
                        assert not UNPRINTABLE.search(answer.text) or not page, (path, name)
                        assert "<script>alert" not in answer.text or not page, (path, name)
            shown = (await client.get("/tasks/T-0/events", params={"limit": 1000})).text
            assert not UNPRINTABLE.search(shown), "something unprintable stands in the log"
    assert said[422] > 80 and said[413] > 5, said


# -- webhooks ----------------------------------------------------------------------------------------------------------

KINDS = (
    "gitea push",
    "gitea merged",
    "gitea status success",
    "gitea workflow run",
    "plane v1 approved",
    "plane v2 approved",
)


@pytest.mark.proves("R71", "R100", "R101", "R102")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_rightly_signed_notice_of_nonsense_is_taken_or_refused_and_never_a_bug(
    tmp_path: Path, kind: str, counts: Counts
) -> None:
    notice = next(n for n in NOTICES if n.name == kind)
    document = slim(json.loads(notice.body))
    said: Counter[int] = Counter()
    async with door(tmp_path) as d:
        for what, sent in spoiled(document, counts.of(3)):
            twisted = replace(notice, body=dumped(sent))
            said[code := await d.knock(twisted)] += 1
            assert code in (200, 413, 422), (what, code)
        for letter in d.letters():
            for name in ("task", "repo", "branch", "head"):
                assert not UNPRINTABLE.search(letter[name]) and not letter[name].startswith("-"), letter
            assert ".." not in letter["repo"] and "<" not in letter["what"]
    assert said[200] > 10, said


def slim(data: Any) -> Any:
    """Without what says nothing to us: else one notice alone has ten thousand twins."""
    telling = [
        "ref",
        "after",
        "sha",
        "number",
        "action",
        "merged",
        "full_name",
        "head_sha",
        "head_branch",
        "event",
        "id",
        "version",
        "field",
        "new_value",
        "old_value",
        "updated_at",
        "sequence_id",
        "external_id",
        "external_source",
        "entity_id",
        "event_id",
        "state_id",
        "updated_by_id",
        "name",
    ]
    inner = [
        "pull_request",
        "head",
        "repository",
        "workflow_run",
        "data",
        "activity",
        "actor",
        "state",
        "previous_attributes",
    ]
    return {k: slim(v) if isinstance(v, dict) else v for k, v in data.items() if k in telling or k in inner}


# -- what forge and tracker answer -------------------------------------------------------------------------------------


class Answering:
    """A server that answers everything with the same document."""

    def __init__(self) -> None:
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": self.body})


PULL = {
    "number": 41, "state": "open", "merged": True, "merge_commit_sha": "ab" * 20,
    "head": {"ref": "feature/1", "sha": "cd" * 20}, "base": {"ref": "main"},
}  # fmt: skip
STATUS = {"id": 1, "context": "ci", "status": "success"}
REVIEW = {"id": 1, "user": {"login": "ann"}, "state": "APPROVED", "commit_id": "cd" * 20, "official": True}


async def said_by(asking: Awaitable[T]) -> T | JournalError:
    """An answer, or the refusal to make one of it, in words that may be printed."""
    try:
        return await asking
    except JournalError as error:
        found = error
    assert not UNPRINTABLE.search(str(found)), found
    return found


SMALL = tuple(v for v in VALUES if not (isinstance(v, str) and len(v) > 10_000))


@pytest.mark.proves("V2", "R101", "R102")
async def test_a_forge_that_answers_nonsense_leaves_its_question_unanswered_and_nothing_worse(counts: Counts) -> None:
    subject = Subject("T-1", "acme/widgets", "feature/1", head="cd" * 20, pr=41)
    answering, answered = Answering(), 0
    async with served(answering) as url:
        forge = GiteaClient(url, gitea.TOKEN)
        for what, document in spoiled(PULL, counts.of(7), SMALL):
            answering.body = dumped(document)
            pull = await said_by(read_pull(forge, subject))
            if isinstance(pull, JournalError):
                assert isinstance(pull, UnansweredError), what
            else:
                answered += 1
                assert (pull.branch, pull.base) == (subject.branch, subject.base), what
                assert len(pull.landed) in (0, 40) and len(pull.head) == 40 and pull.number > 0, what
        for sample in (STATUS, REVIEW):
            for _, document in spoiled([sample], counts.of(3), SMALL):
                answering.body = dumped(document)
                await said_by(read_checks(forge, subject.repo, subject.head))
                await said_by(read_approvals(forge, subject.repo, 41, subject.head))
    assert answered > 10


@pytest.mark.proves("V2", "R101", "R102")
async def test_a_tracker_that_answers_nonsense_asks_for_nothing(counts: Counts) -> None:
    item = {
        "id": plane.made_up("item 7"),
        "sequence_id": 7,
        "state": plane.made_up("state Approved"),
        "external_id": None,
    }
    answering = Answering()
    async with served(answering) as url:
        config = CONFIG.model_copy(update={"url": url, "calls_per_minute": 10_000})
        page = {"results": [item], "next_page_results": False}
        for what, document in spoiled(page, counts.of(3), SMALL):
            answering.body = dumped(document)
            items = PlaneItems(config, PlaneClient(config, plane.KEY, StandingClock()), StandingClock())
            assert await items.asked("T-1") in ("", None), (
                what
            )  # T-1 is no key of the tracker: it is looked for in the list


# -- the command line --------------------------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([*argv])
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else int(code is not None)), out + err


@pytest.fixture(scope="module")
def somewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with a life behind it."""
    return lived(tmp_path_factory.mktemp("lived") / "journal.db")


COMMANDS = tuple(
    tuple(line.split())
    for line in """
    open {} --repo a/b --branch f
    open T-9 --repo {} --branch f
    open T-9 --repo a/b --branch {}
    open T-9 --repo a/b --branch f --head {}
    open T-9 --repo a/b --branch f --pr {}
    advance {}
    advance T-1 --expect {}
    pause {} --reason r
    pause T-1 --reason {}
    cancel T-9 --reason {}
    reopen T-1 --stage {} --reason r
    release T-1 --reason {}
    settle T-1 --as applied --evidence {} --reason r
    inspect {}
    explain {}
    inspect T-1 --at {}
    queue --repo {}
    queue --at {}
    log --task {}
    log --kind {}
    log --since {}
    verify --head {}
    verify --task {}
    export --task {}
    import {}
    recover --apply {}
    backup {}/x
    {}
    """.strip().splitlines()
)
"""Where `{}` stands, hostile text is put."""


@pytest.mark.proves("R100", "R101", "R102")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_argument_of_any_kind_ends_with_an_exit_code_and_printable_words(
    somewhere: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], counts: Counts
) -> None:
    turn = list(TEXTS.items())
    at = COMMANDS.index(command) * 4
    for what, text in (turn * 4)[at % len(turn) :][: min(counts.of(4), len(turn))]:
        if what in ("control", "long"):  # the kernel passes neither: no NUL, and no argument beyond 128 KiB
            text = text.replace("\x00", "")[:50_000]
        text = "".join(chr(0xDC00 + ord(c) % 128 + 128) if "\ud800" <= c <= "\udfff" else c for c in text)
        for shape in ((), ("--json",)):
            code, said = told(capsys, "--db", str(somewhere), *(part.replace("{}", text) for part in command), *shape)
            assert code in (0, 1, 2, 3, 4), (what, said[-500:])
            assert "Traceback" not in said, (what, said[-2000:])
            assert not UNPRINTABLE.search(said), (what, said[-500:])


# -- files -------------------------------------------------------------------------------------------------------------


def settings_of(text: str, each: int) -> Iterator[tuple[str, str]]:
    """The template with one value spoiled, as TOML writes it."""
    numbers = ("9223372036854775808", "-9223372036854775809", "nan", "inf", "-0", "true", "[]", "{}")
    texts = (json.dumps(value.encode("utf-8", "replace").decode()) for value in TEXTS.values())
    turn = cycle((*numbers, *(text.replace("\x7f", "\\u007f") for text in texts)))
    for path in places(tomllib.loads(text)):
        if not any(isinstance(part, int) for part in path):
            for value in islice(turn, each):
                yield f"{path} {value[:20]}", toml(path, value)


def toml(path: tuple[Any, ...], value: str) -> str:
    *tables, key = path
    head = f"[{'.'.join(json.dumps(t) for t in tables)}]\n" if tables else ""
    return f"{head}{json.dumps(key)} = {value}\n"


@pytest.mark.proves("R101")
def test_a_configuration_of_any_kind_is_refused_in_words_or_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: Counts
) -> None:
    config, codes = tmp_path / "journal.toml", Counter[int]()
    for what, text in settings_of(TEMPLATE.read_text("utf-8"), counts.of(1)):
        config.write_text(text, "utf-8", "replace")
        code, said = told(capsys, "--config", str(config), "--db", str(tmp_path / "journal.db"), "queue")
        codes[code] += 1
        assert code in (0, 2, 4), (what, said[-500:])
        assert "Traceback" not in said and not UNPRINTABLE.search(said), (what, said[-500:])
    assert codes[2] > 15, codes


@pytest.mark.proves("R101", "R102")
def test_an_export_that_somebody_spoiled_is_imported_by_nobody(
    somewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], counts: Counts
) -> None:
    told(capsys, "--db", str(somewhere), "export", "--out", str(tmp_path / "whole.jsonl"))
    lines = (tmp_path / "whole.jsonl").read_text("utf-8").splitlines()
    empty = tmp_path / "empty.db"
    for at in (0, len(lines) // 2):
        for what, document in spoiled(json.loads(lines[at]), counts.of(1), SMALL):
            changed = dumped(document).decode()
            if json.loads(changed) == json.loads(lines[at]):
                continue
            (tmp_path / "spoiled.jsonl").write_text("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n", "utf-8")
            code, said = told(capsys, "--db", str(empty), "import", str(tmp_path / "spoiled.jsonl"))
            assert "Traceback" not in said and not UNPRINTABLE.search(said), (at, what, said[-500:])
            if what.startswith("task: ") and at == 0 and code == 0:
                empty.unlink()  # the first line's way to say "all of it" has several spellings; the events are the same
                continue
            assert code in (1, 2, 4), (at, what, said[-500:])
            assert not empty.exists(), (at, what)
    with closing(sqlite3.connect(f"file:{somewhere}?mode=ro", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM journal_events").fetchone()[0] > 10
