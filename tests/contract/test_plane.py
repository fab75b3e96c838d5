"""The tracker: notices are hints, wishes are read afresh, and what we show is a fixed point (R70 to R75)."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import ValidationError

from integrations.plane.client import Answer, PlaneClient, PlaneError
from integrations.plane.config import PlaneConfig
from integrations.plane.gate import PlaneGate, PlaneGateConfig
from integrations.plane.hooks import PlaneHooks
from integrations.plane.poll import SOURCE, PlaneItems
from integrations.plane.publish import PlanePublisher
from journal import Journal
from journal.errors import InvalidInputError
from journal.journal import NewTask
from journal.pipeline import Edge, Pipeline
from journal.ports import Call, Subject
from journal.results import Advanced
from journal.words import Kind, Opening
from recovery.outside import Status
from tests.builders import StandingClock
from tests.doubles.plane import BOT, IDENTIFIER, KEY, PERSON, PROJECT, SECRET, WORKSPACE, Plane, made_up, signed
from tests.doubles.serving import served
from tests.widgets import FreeTerm

STAGES = ("review", "testing", "deploy-staging", "done")
CONFIG = PlaneConfig(
    url="http://127.0.0.1:1",
    workspace=WORKSPACE,
    project=PROJECT,
    identifier=IDENTIFIER,
    transitions={"Approved": "review", "Confirm Deploy": "deploy-staging"},
    states={"review": "Review", "testing": "Testing", "deploy-staging": "Staging", "done": "Done"},
)


@dataclass
class Desk:
    """The adapters over a served double."""

    plane: Plane
    clock: StandingClock
    config: PlaneConfig
    token: str = KEY

    def __post_init__(self) -> None:
        self.client = PlaneClient(self.config, self.token, self.clock)
        self.items = PlaneItems(self.config, self.client, self.clock)
        self.hooks = PlaneHooks(self.config, SECRET, self.items.task_of, self.items.woken)
        self.publisher = PlanePublisher(self.config, self.client, self.items)

    def with_config(self, **more: object) -> Desk:
        return Desk(self.plane, self.clock, PlaneConfig.model_validate(self.config.model_dump() | more), self.token)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    plane = Plane()
    async with served(plane) as url:
        yield Desk(plane, StandingClock(), CONFIG.model_copy(update={"url": url}))


def status(number: int, stage: str, hold: str = "", epoch: int = 1, reason: str = "") -> Status:
    return Status(Subject(f"ORCH-{number}", "acme/widgets", "feature/1"), stage, hold, reason, epoch, 1)


# --- notices ----------------------------------------------------------------------------------------------------------


def hooks(config: PlaneConfig = CONFIG) -> PlaneHooks:
    return PlaneHooks(config, SECRET, lambda item: "", lambda: None)


@pytest.mark.proves("R71", "R72")
def test_only_the_exact_bytes_under_the_right_secret_are_authentic() -> None:
    odd = b'{ "event":"issue",\t"event" : "issue", "data": {"id": "\\u0041\\u00e9", "sequence_id": 7}}\n'
    headers, raw = signed("issue", odd)
    assert hooks().verify(raw, headers) is not None, "odd spacing, escapes and doubled keys are the sender's business"
    signature = headers["x-plane-signature"]
    for forged in ("", "0" * 64, signature[:-1], signature + "0", signature.upper(), f"sha256={signature}", "é" * 64):
        assert hooks().verify(raw, {**headers, "x-plane-signature": forged}) is None, forged
    assert hooks().verify(raw, {k: v for k, v in headers.items() if k != "x-plane-signature"}) is None
    assert hooks().verify(raw + b" ", headers) is None
    assert hooks().verify(json.dumps(json.loads(raw)).encode(), headers) is None, "re-encoded is not what was signed"
    others, _ = signed("issue", odd, secret="another")
    assert hooks().verify(raw, others) is None


@pytest.mark.proves("R72")
def test_an_empty_secret_is_refused_and_not_taken_for_no_secret() -> None:
    with pytest.raises(InvalidInputError, match="ORCH_PLANE_WEBHOOK_SECRET"):
        PlaneHooks(CONFIG, "", lambda item: "", lambda: None)


@pytest.mark.proves("R74")
@pytest.mark.parametrize("version", [1, 2])
def test_every_notice_of_one_change_has_one_id_and_two_changes_have_two(version: int) -> None:
    plane = Plane(version)
    plane.add(7)
    plane.move(7, "Approved", key="state")
    first = [hooks().verify(raw, headers) for headers, raw in plane.notices]
    assert len(first) == (2 if version == 1 else 1)
    assert {hint.delivery for hint in first if hint} == {first[0].delivery}  # type: ignore[union-attr]
    plane.move(7, "Review")
    plane.move(7, "Approved")
    known = {hint.delivery for headers, raw in plane.notices if (hint := hooks().verify(raw, headers))}
    assert len(known) == 3, "the same move made again later is another change"


@pytest.mark.parametrize("version", [1, 2])
def test_a_notice_names_task_move_comment_and_actor(version: int) -> None:
    plane = Plane(version)
    item = plane.add(7)
    plane.move(7, "Approved")
    plane.say(7, "/rollback please")
    moved = hooks().read(plane.notices[0][1], plane.notices[0][0])
    said = hooks().read(plane.notices[-1][1], plane.notices[-1][0])
    assert moved and said
    assert (moved.item, moved.task, moved.state) == (item, "ORCH-7", plane.states["Approved"])
    assert (moved.what, moved.actor) == ("state changed", PERSON)
    assert said.item == item and "/rollback please" in said.comment and said.actor == PERSON and not said.state


def test_a_v1_move_is_told_by_what_changed_and_not_by_what_the_item_is_by_now() -> None:
    plane = Plane()
    plane.add(7)
    body = plane._first("issue", plane.items[made_up("item 7")], PERSON, "state_id", "old", plane.states["Approved"])
    headers, raw = signed("issue", json.dumps(body).encode())
    notice = hooks().read(raw, headers)
    assert notice and notice.state == plane.states["Approved"], "data.state still says Review"


@pytest.mark.proves("R101", "R102")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"event": "issue"}',
        b'{"event": 7, "data": [], "activity": "None"}',
        b'{"data": {"id": "\\ud800"}}',
        b'{"version": "v2", "data": {"id": "None", "sequence_id": true}, "previous_attributes": "None"}',
        b'{"data": {"external_source": "transition-journal", "external_id": "../../etc/passwd"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_rightly_signed_but_says_nothing_is_a_hint_about_no_task(raw: bytes) -> None:
    headers, _ = signed("issue", raw)
    hint = hooks().verify(raw, headers)
    assert hint is not None and hint.task == ""


@pytest.mark.proves("R75")
@pytest.mark.parametrize("version", [1, 2])
def test_what_our_own_account_did_names_no_task(version: int) -> None:
    plane = Plane(version)
    plane.add(7)
    plane.move(7, "Testing", by=BOT)
    ours = hooks(CONFIG.model_copy(update={"account": BOT}))
    assert [ours.verify(raw, headers).task for headers, raw in plane.notices] == [""] * len(plane.notices)  # type: ignore[union-attr]


# --- wishes -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R70", "R73")
async def test_a_wish_is_the_state_the_item_has_now(desk: Desk) -> None:
    desk.plane.add(7)
    assert await desk.items.asked("ORCH-7") == ""
    desk.plane.move(7, "Approved")
    assert await desk.items.asked("ORCH-7") == "review", "found without any notice"
    desk.plane.move(7, "Confirm Deploy")
    assert await desk.items.asked("ORCH-7") == "deploy-staging"
    assert await desk.items.asked("ORCH-8") == "", "no such item: nobody asks"
    assert await desk.items.asked("other") == ""


async def test_a_task_of_any_name_is_found_by_its_external_id(desk: Desk) -> None:
    desk.plane.page = 2
    for number in range(5):
        desk.plane.add(number, external_source=SOURCE, external_id=f"task.{number}")
    desk.plane.move(4, "Approved")
    assert await desk.items.asked("task.4") == "review"
    assert desk.items.task_of(made_up("item 4")) == "task.4"


@pytest.mark.proves("V3")
async def test_a_tracker_that_does_not_answer_is_unknown_and_never_nobody_asks(desk: Desk) -> None:
    desk.plane.add(7, "Approved")
    for refused in (500, 502, 401, 403):
        desk.plane.refused = [refused]
        assert await desk.items.asked("ORCH-7") is None, refused
    nobody = Desk(desk.plane, desk.clock, CONFIG)
    assert await nobody.items.asked("ORCH-7") is None
    assert await Desk(desk.plane, desk.clock, desk.config, token="wrong").items.asked("ORCH-7") is None
    assert await desk.items.asked("ORCH-7") == "review"


async def test_a_round_over_many_tasks_costs_one_listing(desk: Desk) -> None:
    for number in range(60):
        desk.plane.add(number)
    desk.plane.move(33, "Approved")
    wishes = [await desk.items.asked(f"ORCH-{number}") for number in range(60)]
    assert wishes.count("review") == 1 and len(desk.plane.calls) < 10, desk.plane.calls


@pytest.mark.proves("R70")
async def test_a_listing_from_before_a_notice_no_longer_answers(desk: Desk) -> None:
    for number in range(10):
        desk.plane.add(number)
    for number in range(10):
        await desk.items.asked(f"ORCH-{number}")
    desk.plane.move(9, "Approved")
    for headers, raw in desk.plane.notices:
        desk.hooks.verify(raw, headers)
    assert await desk.items.asked("ORCH-9") == "review"


@pytest.mark.proves("R70", "R75")
async def test_a_listing_that_a_notice_overtakes_no_longer_answers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hide the wish for seconds, and let what we show write over it."""
    for number in range(10):
        desk.plane.add(number, "Staging")
    asked = desk.client.get

    async def get(path: str, **query: str | int) -> Answer:
        answer = await asked(path, **query)
        if path == "work-items/" and desk.plane.state_of(9) == "Staging":
            desk.plane.move(9, "Confirm Deploy")
            for headers, raw in desk.plane.notices:
                desk.hooks.verify(raw, headers)
        return answer

    monkeypatch.setattr(desk.client, "get", get)
    for number in range(9):
        await desk.items.asked(f"ORCH-{number}")
    assert desk.plane.state_of(9) == "Confirm Deploy"
    assert await desk.items.asked("ORCH-9") == "deploy-staging"


async def test_a_renamed_state_is_looked_up_again_and_an_id_needs_no_name(desk: Desk) -> None:
    desk.plane.add(7)
    assert await desk.items.asked("ORCH-7") == ""
    desk.plane.states = {("Go!" if name == "Approved" else name): known for name, known in desk.plane.states.items()}
    by_id = desk.with_config(transitions={desk.plane.states["Go!"]: "review"})
    by_name = desk.with_config(transitions={"Go!": "review"})
    desk.plane.move(7, "Go!")
    assert await by_id.items.asked("ORCH-7") == await by_name.items.asked("ORCH-7") == "review"
    assert await desk.with_config(transitions={"Gone": "review"}).items.asked("ORCH-7") is None


async def test_only_an_approvers_wish_counts(desk: Desk) -> None:
    strict = desk.with_config(approvers=("chief-1",))
    desk.plane.add(7)
    desk.plane.move(7, "Approved", by=PERSON)
    assert await strict.items.asked("ORCH-7") == ""
    desk.plane.move(7, "Review")
    desk.plane.move(7, "Approved", by="chief-1")
    assert await strict.items.asked("ORCH-7") == "review"
    desk.plane.activities[made_up("item 7")].clear()
    assert await strict.items.asked("ORCH-7") == "", "a history that does not say who is nobody's wish"


@pytest.mark.parametrize(
    ("state", "opening"), [("Confirm Deploy", Opening.OPEN), ("Staging", Opening.CLOSED), ("", Opening.UNKNOWN)]
)
async def test_the_gate_reads_the_item_anew_each_time(desk: Desk, state: str, opening: Opening) -> None:
    gate = PlaneGate(PlaneGateConfig(states=("Confirm Deploy",)), desk.items)
    call = Call("j", Subject("ORCH-7", "acme/widgets", "x"), 1, "gate", 1, 0, 10.0, FreeTerm())
    for number in range(7, 15):
        desk.plane.add(number, "Review")
        await desk.items.asked(f"ORCH-{number}")  # a round: from here on a listing answers for a while
    assert (await gate.ask(call)).opening is Opening.CLOSED
    if state:
        desk.plane.move(7, state)
    else:
        desk.plane.refused = [503]
    answer = await gate.ask(call)
    assert answer.opening is opening and (opening is Opening.OPEN) != bool(answer.reason)


# --- what we show -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("R75")
async def test_showing_twice_writes_once_and_the_echo_changes_nothing(desk: Desk) -> None:
    desk.plane.add(7)
    assert await desk.publisher.publish(status(7, "testing", "parked", reason="<coverage> & more"))
    writes = [call for call in desk.plane.calls if not call.startswith("GET")]
    assert desk.plane.state_of(7) == "Testing" and len(writes) == 2
    for headers, raw in desk.plane.notices:
        desk.hooks.verify(raw, headers)
    assert await desk.publisher.publish(status(7, "testing", "parked", reason="<coverage> & more"))
    assert len(desk.plane.comments[made_up("item 7")]) == 1, "the tracker refused the second by its external id"
    assert "&lt;coverage&gt; &amp; more" in desk.plane.comments[made_up("item 7")][0]["comment_html"]
    assert [call for call in desk.plane.calls if call.startswith("PATCH")] == writes[:1]


async def test_a_wish_about_the_present_stage_is_never_overwritten_and_one_about_another_is(desk: Desk) -> None:
    desk.plane.add(7, "Approved")
    assert await desk.publisher.publish(status(7, "review"))
    assert desk.plane.state_of(7) == "Approved"
    assert await desk.publisher.publish(status(7, "testing"))
    assert desk.plane.state_of(7) == "Testing"
    desk.plane.move(7, "Confirm Deploy")
    assert await desk.publisher.publish(status(7, "review"))
    assert desk.plane.state_of(7) == "Review", "a rollback must not leave a confirmation behind"


async def test_what_could_not_be_shown_is_said_so_and_an_item_that_is_gone_is_no_failure(desk: Desk) -> None:
    desk.plane.add(7)
    desk.plane.refused = [500]
    assert not await desk.publisher.publish(status(7, "testing"))
    assert await desk.publisher.publish(status(7, "testing")) and desk.plane.state_of(7) == "Testing"
    assert await desk.publisher.publish(status(99, "testing"))


@pytest.mark.proves("R74", "R75", "FR-2")
async def test_three_shuffled_notices_of_one_approval_and_all_echoes_advance_the_task_once(
    desk: Desk, tmp_path: Path
) -> None:
    """Every notice is acted upon three times, in any order; whatever we write comes back as notices of its own."""
    seed = 20
    pipeline = Pipeline(STAGES, tuple(Edge(a, b) for a, b in pairwise(STAGES)), {})
    desk.plane.add(7)
    async with Journal.open(tmp_path / "journal.db", pipeline=pipeline, steps={}) as journal:
        await journal.open_task(NewTask("ORCH-7", "acme/widgets", "feature/1"), actor="operator")
        desk.plane.move(7, "Approved", key="state")
        rounds = 0
        while (notices := desk.plane.notices) and (rounds := rounds + 1) < 10:
            desk.plane.notices = []
            again = notices * 3
            random.Random(seed).shuffle(again)
            for headers, raw in again:
                hint = desk.hooks.verify(raw, headers)
                assert hint
                stage = (await journal.stream("ORCH-7")).state.stage
                if hint.task and await desk.items.asked(hint.task) == stage:
                    assert isinstance(await journal.advance(hint.task, expect=stage, actor="plane"), Advanced)
                stage = (await journal.stream("ORCH-7")).state.stage
                assert await desk.publisher.publish(status(7, stage))
        moves = [event for event in await journal.events("ORCH-7") if event.kind is Kind.STAGE_MOVED]
    assert len(moves) == 1 and desk.plane.state_of(7) == "Testing"
    assert rounds == 2, "the echo of our one write is the last that is heard"


# --- pace -------------------------------------------------------------------------------------------------------------


async def test_no_minute_sees_more_calls_than_the_key_may_make(desk: Desk) -> None:
    slow = desk.with_config(calls_per_minute=5)
    desk.plane.add(7)
    made: list[float] = []
    for _ in range(13):
        await slow.client.get(f"work-items/{made_up('item 7')}/")
        made.append(desk.clock.monotonic_s())
    assert all(later - earlier >= 60 for earlier, later in zip(made, made[5:], strict=False))


async def test_429_is_answered_by_resting_as_long_as_it_says_and_then_by_giving_up(desk: Desk) -> None:
    desk.plane.add(7, "Approved")
    desk.plane.refused = [(429, {"Retry-After": "17"})]
    assert await desk.items.asked("ORCH-7") == "review"
    assert 17 in desk.clock.slept
    desk.plane.refused = [(429, {"Retry-After": "3600"})]
    with pytest.raises(PlaneError):
        await desk.client.get("states/")
    calls = len(desk.plane.calls)
    with pytest.raises(PlaneError):
        await desk.client.get("states/")
    assert len(desk.plane.calls) == calls, "nothing is asked while the tracker allows nothing"


async def test_a_budget_that_is_used_up_is_rested_for_before_it_is_exceeded(desk: Desk) -> None:
    desk.plane.headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(desk.clock.monotonic_s()) + 60)}
    desk.plane.add(7)
    await desk.client.get("states/")
    await desk.client.get("states/")
    assert desk.clock.slept and 50 <= desk.clock.slept[0] <= 60


async def test_the_key_stands_in_no_error(desk: Desk) -> None:
    desk.plane.refused = [403, 500]
    for _ in range(2):
        with pytest.raises(PlaneError) as caught:
            await desk.client.get("states/")
        assert KEY not in str(caught.value)


def test_a_configuration_that_would_ask_for_itself_is_refused() -> None:
    whole = CONFIG.model_dump()
    asks_for_itself, no_stage = {"states": {"review": "Approved"}}, {"transitions": {"A": "no stage!"}}
    for wrong in (asks_for_itself, no_stage, {"workspace": ""}, {"url": "ftp://x"}):
        with pytest.raises(ValidationError):
            PlaneConfig.model_validate(whole | wrong)
