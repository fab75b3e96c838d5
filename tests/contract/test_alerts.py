"""Alerts reach a person at least once, with an id that makes a repeat recognisable; lessons are written once (FR-6)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from integrations.alerts.alert import Alert, What, alert_of
from integrations.alerts.config import AlertsConfig
from integrations.alerts.lessons import Lessons
from integrations.alerts.outbox import PERIOD_S, NotDeliveredError, Outbox
from integrations.alerts.telegram import LIMIT, Telegram
from journal.errors import PoisonedError
from journal.events import Acquired, Draft, HazardFound, Owner, Parked, Released, Resumed
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.stream import Stream
from journal.words import Cause, Ending, Kind
from tests.builders import StandingClock, acquired, opened, plan
from tests.doubles.serving import served
from tests.doubles.telegram import TOKEN
from tests.doubles.telegram import Telegram as Double

EDGE = plan("merge_pr")


@dataclass
class Ledger:
    """A real log, and the terms of tasks written into it."""

    path: Path
    clock: StandingClock = field(default_factory=StandingClock)
    log: SqliteLog = None  # type: ignore[assignment]

    async def open(self) -> None:
        self.log = await SqliteLog.open(
            self.path, write=True, clock=self.clock, new_id=lambda: "ab" * 16, projections=()
        )

    async def append(self, task: str, *drafts: Draft) -> None:
        stream = await self.log.read(task)
        answer = await self.log.append(Unit(stream if stream.version else Stream(task), drafts))
        assert isinstance(answer, Written), answer

    async def park(self, task: str, reason: str = "the forge says nothing") -> None:
        """Open a task, drive it, park it."""
        epoch = (await self.log.read(task)).state.epoch + 1
        if epoch == 1:
            await self.append(task, opened())
        parked = Draft(Parked(reason, f"{task}/1/{epoch}"), epoch, 1, "worker", "merge_pr")
        await self.append(
            task, acquired(EDGE, epoch), parked, Draft(Released(Ending.PARKED, reason), epoch, 1, "worker")
        )

    async def reclaim(self, task: str, cause: Cause) -> None:
        """A task whose first owner is gone is taken over."""
        await self.append(task, opened())
        await self.append(task, acquired(EDGE))
        await self.append(task, Draft(Acquired(Owner("run-2"), EDGE, "run-1", cause), 2, 1, "operator"))


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path / "journal.db")
    await ledger.open()
    yield ledger
    await ledger.log.close()


@dataclass
class Chat:
    """A sink that keeps what it is told, or refuses."""

    told: list[Alert] = field(default_factory=list)
    at_once: int = 100
    refuse: bool = False

    def wants(self, alert: Alert) -> bool:
        return True

    async def deliver(self, alerts: Sequence[Alert]) -> int:
        if self.refuse:
            raise NotDeliveredError(why="no", retry_s=60)
        self.told += alerts[: self.at_once]
        return len(alerts[: self.at_once])


def outbox(ledger: Ledger, sink: Chat | Telegram | Lessons) -> Outbox:
    return Outbox("alerts", ledger.log, sink, ledger.clock)


# --- what is told, and how often --------------------------------------------------------------------------------------


@pytest.mark.proves("FR-6")
async def test_parking_hazards_and_reclaims_are_told_and_a_process_that_died_is_not(ledger: Ledger) -> None:
    chat = Chat()
    await ledger.park("T-1")
    await ledger.append("T-1", Draft(HazardFound("main was rewritten"), 1, 1, "reconciler"))
    await ledger.reclaim("T-2", Cause.BUDGET)
    await ledger.reclaim("T-3", Cause.OPERATOR)
    await ledger.reclaim("T-4", Cause.GONE)
    await outbox(ledger, chat).round()
    assert [(alert.what, alert.task) for alert in chat.told] == [
        (What.PARKED, "T-1"),
        (What.HAZARD, "T-1"),
        (What.STALE, "T-2"),
        (What.FORCED, "T-3"),
    ]
    assert len({alert.id for alert in chat.told}) == 4 and chat.told[0].step == "merge_pr"


@pytest.mark.proves("FR-6")
async def test_what_was_told_is_not_told_again_and_a_restart_goes_on_behind_it(ledger: Ledger) -> None:
    chat = Chat()
    first = outbox(ledger, chat)
    await ledger.park("T-1")
    await first.round()
    await first.round()
    await ledger.park("T-2")
    await outbox(ledger, chat).round()
    assert [alert.task for alert in chat.told] == ["T-1", "T-2"]


@pytest.mark.proves("FR-6")
async def test_a_crash_between_telling_and_storing_tells_again_under_the_same_id(ledger: Ledger) -> None:
    class Dies(Chat):
        async def deliver(self, alerts: Sequence[Alert]) -> int:
            await super().deliver(alerts)
            raise KeyboardInterrupt

    dying = Dies()
    await ledger.park("T-1")
    with pytest.raises(KeyboardInterrupt):
        await outbox(ledger, dying).round()
    await ledger.log.close()
    await ledger.open()
    chat = Chat()
    await outbox(ledger, chat).round()
    assert [alert.id for alert in chat.told] == [alert.id for alert in dying.told] != []


async def test_what_is_refused_waits_its_time_and_comes_first(ledger: Ledger) -> None:
    chat = Chat(refuse=True)
    followed = outbox(ledger, chat)
    await ledger.park("T-1")
    assert await followed.rest_after_round() == 60
    chat.refuse = False
    await ledger.park("T-2")
    assert await followed.rest_after_round() == PERIOD_S
    assert [alert.task for alert in chat.told] == ["T-1", "T-2"]


async def test_a_delivery_that_holds_only_some_leaves_the_others_for_the_next(ledger: Ledger) -> None:
    chat = Chat(at_once=2)
    for n in range(5):
        await ledger.park(f"T-{n}")
    followed = outbox(ledger, chat)
    for _ in range(4):
        await followed.round()
    assert [alert.task for alert in chat.told] == [f"T-{n}" for n in range(5)]


@pytest.mark.proves("R45")
async def test_the_same_hazard_of_the_same_term_is_told_once_however_often_it_is_found(ledger: Ledger) -> None:
    chat = Chat()
    await ledger.park("T-1")
    hazard = Draft(HazardFound("main was rewritten"), 1, 1, "reconciler")
    for _ in range(3):
        await ledger.append("T-1", hazard)
    await ledger.append("T-1", replace(hazard, body=HazardFound("something else")))
    await outbox(ledger, chat).round()
    await ledger.append("T-1", hazard)
    await outbox(ledger, chat).round()
    assert [alert.reason for alert in chat.told if alert.what is What.HAZARD] == [
        "main was rewritten",
        "something else",
    ]


async def test_parking_again_in_a_new_term_is_told_again(ledger: Ledger) -> None:
    chat = Chat()
    await ledger.park("T-1")
    await ledger.append("T-1", Draft(Resumed("again"), 1, 1, "operator"))
    await ledger.park("T-1")
    await outbox(ledger, chat).round()
    assert len({alert.id for alert in chat.told}) == len(chat.told) == 2


async def test_a_log_that_is_followed_for_the_first_time_tells_the_last_day_and_not_its_whole_history(
    ledger: Ledger,
) -> None:
    chat = Chat()
    await ledger.park("T-old")
    ledger.clock.us += 2 * 86_400_000_000
    await ledger.park("T-new")
    await outbox(ledger, chat).round()
    assert [alert.task for alert in chat.told] == ["T-new"]


@pytest.mark.proves("S6")
async def test_a_journal_that_can_no_longer_be_written_is_told_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat()
    broken = PoisonedError(path="journal.db", why="disk I/O error")
    monkeypatch.setattr(SqliteLog, "broken", property(lambda self: broken))
    followed = outbox(ledger, chat)
    for _ in range(3):
        await followed.rest_after_round()
    assert [(alert.what, alert.task) for alert in chat.told] == [(What.STOPPED, "")]
    assert "disk I/O error" in chat.told[0].reason


async def test_every_alert_comes_from_one_of_the_kinds_that_are_looked_for(ledger: Ledger) -> None:
    await ledger.park("T-1")
    await ledger.append("T-1", Draft(HazardFound("x"), 1, 1, "reconciler"))
    events = await ledger.log.events()
    told = {event.kind for event in events if alert_of(event)}
    assert told == {Kind.PARKED, Kind.HAZARD_FOUND}


# --- Telegram ---------------------------------------------------------------------------------------------------------


@dataclass
class Phone:
    """The sink over a served double."""

    double: Double
    config: AlertsConfig
    token: str = TOKEN

    @property
    def sink(self) -> Telegram:
        return Telegram(self.config, self.token)


@pytest.fixture
async def phone() -> AsyncIterator[Phone]:
    double = Double()
    async with served(double) as url:
        yield Phone(
            double,
            AlertsConfig(
                telegram_chat="-100", telegram_api=url, task_url="https://plane.example/browse/{task}?a=1&b=2"
            ),
        )


ALERT = Alert("ORCH-7/1/3/abcdef01", What.PARKED, "ORCH-7", "probe said <unknown> & nothing else", "merge_pr")


@pytest.mark.proves("FR-6")
async def test_a_message_names_a_clickable_task_the_reason_and_the_id(phone: Phone) -> None:
    assert await phone.sink.deliver([ALERT]) == 1
    message, text = phone.double.messages[0], phone.double.texts[0]
    assert '<a href="https://plane.example/browse/ORCH-7?a=1&amp;b=2">ORCH-7</a>' in message["text"]
    assert ALERT.reason in text and ALERT.id in text and "merge_pr" in text and message["chat_id"] == "-100"


async def test_without_an_address_the_task_is_named_and_not_linked(phone: Phone) -> None:
    await Telegram(phone.config.model_copy(update={"task_url": ""}), TOKEN).deliver([ALERT])
    assert "<a" not in phone.double.messages[0]["text"] and "ORCH-7" in phone.double.texts[0]


async def test_hostile_words_are_shown_and_never_become_tags(phone: Phone) -> None:
    hostile = '</code><a href="https://evil.example">x</a> \u202e\x1b[31m &amp; <script>'
    await phone.sink.deliver([replace(ALERT, reason=hostile)])
    assert "evil.example" in phone.double.texts[0]
    assert "\x1b" not in phone.double.texts[0] and "&amp; <script>" in phone.double.texts[0]
    assert phone.double.messages[0]["text"].count("<a ") == 1


async def test_many_alerts_are_few_messages_that_all_fit(phone: Phone) -> None:
    sink, waiting = phone.sink, [replace(ALERT, reason="\U0001f525" * 2000, id=f"id-{n}") for n in range(60)]
    while waiting:
        waiting = waiting[await sink.deliver(waiting) :]
    assert 1 < len(phone.double.messages) < 12
    assert all(len(text.encode("utf-16-le")) // 2 <= LIMIT for text in phone.double.texts)
    assert all(any(f"id-{n})" in text or f"id id-{n}" in text for text in phone.double.texts) for n in range(60))


async def test_a_message_that_telegram_cannot_parse_is_sent_once_as_plain_text(phone: Phone) -> None:
    parse = {"error_code": 400, "description": "Bad Request: can't parse entities: byte 7"}
    phone.double.refusals = [parse]
    await phone.sink.deliver([ALERT])
    assert "parse_mode" not in phone.double.messages[0] and ALERT.reason in phone.double.texts[0]
    phone.double.refusals = [parse, parse]
    with pytest.raises(NotDeliveredError):
        await phone.sink.deliver([ALERT])
    assert len(phone.double.calls) == 4


@pytest.mark.parametrize(
    ("refusal", "least_s"),
    [
        ({"error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 12}}, 12),
        ({"error_code": 403, "description": "Forbidden: bot was blocked by the user"}, 60),
        ({"error_code": 400, "description": "Bad Request: chat not found"}, 60),
        (502, 1),
    ],
)
async def test_a_refusal_is_no_delivery_and_says_when_to_come_again(
    phone: Phone, refusal: dict[str, object] | int, least_s: float
) -> None:
    phone.double.refusals = [refusal]
    with pytest.raises(NotDeliveredError) as caught:
        await phone.sink.deliver([ALERT])
    assert caught.value.retry_s > least_s and not phone.double.messages
    assert len(phone.double.calls) == 1


async def test_a_lost_answer_is_told_again_with_the_same_id(phone: Phone, ledger: Ledger) -> None:
    await ledger.park("T-1")
    phone.double.drop_after = 1
    followed = outbox(ledger, phone.sink)
    assert await followed.rest_after_round() > PERIOD_S
    await followed.rest_after_round()
    first, second = phone.double.texts
    assert first == second and "T-1/1/1/" in first


async def test_a_chat_that_moved_is_followed(phone: Phone) -> None:
    phone.double.moved_to = -200
    sink = phone.sink
    await sink.deliver([ALERT])
    await sink.deliver([ALERT])
    assert [message["chat_id"] for message in phone.double.messages] == ["-200", "-200"]
    assert len(phone.double.calls) == 3


async def test_the_token_stands_in_no_error_and_no_log(phone: Phone, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await phone.sink.deliver([ALERT])
    nobody = Telegram(phone.config.model_copy(update={"telegram_api": "http://127.0.0.1:1"}), TOKEN)
    wrong = Telegram(phone.config, "wrong-token")
    for sink in (nobody, wrong):
        with pytest.raises(NotDeliveredError) as caught:
            await sink.deliver([ALERT])
        assert TOKEN not in repr(caught.value) and caught.value.__cause__ is None
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")]
    assert not [line for line in ours if "token" in line]


# --- lessons ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Path:
    path = tmp_path / "host.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE lessons (id INTEGER PRIMARY KEY, source TEXT NOT NULL, text TEXT NOT NULL, extra TEXT)"
        )
        db.commit()
    return path


def rows(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT source, text FROM lessons").fetchall()


@pytest.mark.proves("FR-6")
async def test_a_reclaim_is_one_lesson_and_nothing_else_is_any(ledger: Ledger, host: Path) -> None:
    lessons = Lessons(AlertsConfig(lessons_db=host), host)
    await ledger.park("T-1")
    await ledger.reclaim("T-2", Cause.BUDGET)
    await ledger.reclaim("T-3", Cause.OPERATOR)
    await ledger.reclaim("T-4", Cause.GONE)
    await outbox(ledger, lessons).round()
    await Outbox("told-again", ledger.log, lessons, ledger.clock).round()
    assert [source for source, _ in rows(host)] == ["auto", "auto"]
    assert "T-2" in rows(host)[0][1] and "operator" in rows(host)[1][1]


@pytest.mark.proves("FR-6", "TR-9")
async def test_a_host_table_that_is_not_there_keeps_the_lesson_for_later_and_harms_nobody(
    ledger: Ledger, tmp_path: Path, host: Path
) -> None:
    await ledger.reclaim("T-2", Cause.BUDGET)
    nowhere = Lessons(AlertsConfig(), tmp_path / "nowhere.db")
    followed = outbox(ledger, nowhere)
    assert await followed.rest_after_round() > PERIOD_S
    assert not (tmp_path / "nowhere.db").exists()
    await outbox(ledger, Lessons(AlertsConfig(), host)).round()
    assert len(rows(host)) == 1


async def test_lessons_may_lie_in_the_journals_own_file(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path)) as db:
        db.execute("CREATE TABLE lessons (source TEXT, text TEXT)")
        db.commit()
    await ledger.reclaim("T-2", Cause.OPERATOR)
    await outbox(ledger, Lessons(AlertsConfig(), ledger.path)).round()
    await ledger.park("T-9")
    assert len(rows(ledger.path)) == 1
