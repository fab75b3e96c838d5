"""
Shows a task on its pull request: a commit status that names the stage, and a comment when it needs a person.

Views for people; showing the same again changes nothing, and our own writing coming back as a notice neither (R75).
"""

from __future__ import annotations

import hashlib

import structlog

from integrations.gitea.poll import OURS
from integrations.gitea.pulls import UnansweredError
from integrations.gitea.reports import GiteaReports, State, StatusReport
from journal.errors import InvalidInputError
from recovery.outside import Status

logger = structlog.get_logger(__name__)

_NEEDS_A_PERSON = ("parked", "canceled")


class GiteaPublisher:
    """`Outside` over one forge; `foreign` names repositories that are not on it."""

    def __init__(self, reports: GiteaReports, foreign: frozenset[str] = frozenset()) -> None:
        self._reports, self._foreign = reports, foreign

    async def publish(self, status: Status) -> bool:
        """Show a status; False = it could not be done now."""
        subject = status.subject
        if subject.repo in self._foreign or not subject.head:
            return True
        try:
            await self._reports.status(subject.repo, report_of(status))
            if status.hold in _NEEDS_A_PERSON and subject.pr:
                text = f"**{status.hold}** in `{status.stage}`: {status.reason}"
                await self._reports.comment(subject.repo, subject.pr, mark_of(status), text)
        except UnansweredError as error:
            logger.warning("forge_not_told", task=subject.task, error=str(error), status=error.status)
            return False
        except InvalidInputError:
            return True  # a repository whose name no forge can have: there is nothing to show it on
        return True


def report_of(status: Status) -> StatusReport:
    """
    The commit status that shows a task.

    Green as long as nothing is wrong, never pending: where a branch rule waits for all statuses, one of ours that waits
    for the merge would keep the merge waiting.
    """
    needs_a_person = status.hold in _NEEDS_A_PERSON
    said = f"{status.hold}: {status.reason}" if needs_a_person else status.hold or "on its way"
    state: State = "failure" if needs_a_person else "success"
    return StatusReport(status.subject.head, f"{OURS}{status.subject.task}", state, f"{status.stage} ({said})"[:250])


def mark_of(status: Status) -> str:
    """One comment per term that ended so; the task's name may be longer than a mark."""
    return hashlib.sha256(f"{status.subject.task}/{status.epoch}/{status.hold}".encode()).hexdigest()[:32]
