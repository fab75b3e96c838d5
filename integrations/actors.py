"""
The actors beside the dispatcher, made from the settings: worker, reaper, reconciler, inbox, auditor, publishers.

Each is a duty that lives by itself. All of them enter a task by the same door as everybody else: acquire or defer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from integrations.duties import Duty, single
from integrations.jobs.worker import JobWorker
from integrations.sections import ServeSection
from integrations.wiring import Parts
from integrations.worker import Dispatcher
from journal import Journal
from journal.events import Event
from journal.results import Result
from recovery.attention import Attention
from recovery.auditor import Auditor
from recovery.hints import HintHandler
from recovery.inbox import Inbox
from recovery.jobs import Jobs
from recovery.publisher import Publisher
from recovery.reaper import Reaper
from recovery.reconciler import Reconciler
from recovery.sealer import Sealer

AGAIN_S = 900.0
"""Seconds between two rounds in which every open task's status is shown outside anew."""


class Actors:
    """Everything of one driving service that asks for runs, and the inbox that feeds it."""

    def __init__(self, journal: Journal, dispatcher: Dispatcher, parts: Parts, serve: ServeSection) -> None:
        clock = self._clock = journal.clock
        self._leads = journal.tools.hosts.leads
        jobs = Jobs(journal.log, clock)
        self._dispatcher = dispatcher
        self.inbox = Inbox(journal.log, clock)
        attention = Attention(journal, submit=self._submit, hint=self._hint, forge=parts.forge, tracker=parts.tracker)
        self.worker = JobWorker(journal, jobs, parts.jobs, slots=serve.jobs, advance=self._advance)
        self._handler = HintHandler(journal, self.inbox, attention)
        self._publishers = {
            name: Publisher(journal, name, outside, again_s=AGAIN_S) for name, outside in parts.outsides.items()
        }
        timeouts_s = {stage: config.timeout_s for stage, config in parts.jobs.items()}
        self._reaper = Reaper(
            journal,
            jobs,
            submit=self._submit,
            timeouts_s=timeouts_s,
            left_to_startup=lambda task: task in dispatcher.startup,
        )
        self._reconciler = Reconciler(journal, jobs, attention, submit=self._submit, poll_s=serve.poll_s)
        self._auditor = Auditor(journal)
        self._sealer = Sealer(journal)

    def duties(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What is to be kept running, by name."""
        return {
            "jobs": self.worker.serve,
            "reaper": self._reaper.serve,
            "reconciler": self._reconciler.serve,
            "inbox": self._handler.serve,
            "auditor": self._single(self._auditor.serve),
            "sealer": self._sealer.serve,
        } | {f"publish.{name}": self._single(publisher.serve) for name, publisher in self._publishers.items()}

    def _single(self, serve: Duty) -> Duty:
        return single(serve, self._leads, self._clock)

    def on_events(self, events: Sequence[Event]) -> None:
        """Called in the writer's thread after each commit."""
        self._dispatcher.on_events(events)
        self.worker.on_events(events)
        self._handler.on_events(events)
        for publisher in self._publishers.values():
            publisher.on_events(events)

    def _hint(self, task: str) -> None:
        self._dispatcher.hint(task)
        self._reconciler.hint(task)

    async def _submit(self, task: str, actor: str, expect: str) -> Result:
        return await self._dispatcher.submit(task, actor=actor, expect=expect)

    async def _advance(self, task: str, stage: str) -> object:
        return await self._submit(task, "worker", stage)
