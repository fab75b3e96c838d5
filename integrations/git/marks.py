"""
Marks: the trailers that a merge carries, written and read (DESIGN 6; git-facts 6; PROTOCOL F3, A4).

Anyone who can push can write a mark, and old ones travel in squash messages: a mark says what to look for, and it
counts only for the change it names. The journal's id decides whether it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from integrations.git.repository import Repository
from journal.ports import Call

_KEY, _FENCE, JOURNAL, _HEAD = "Transition: ", "Transition-Fence: ", "Transition-Journal: ", "Transition-Head: "


@dataclass(frozen=True, slots=True)
class Mark:
    """What one commit or tag says about the step that made it; "" for what it does not say."""

    key: str
    fence: str = ""  # epoch.attempt
    journal: str = ""  # the journal's id, which survives a restore
    cites: str = ""  # position:hash of the intent
    head: str = ""  # the change that was merged; without it a squash could not be tied to its branch

    @property
    def trailers(self) -> str:
        """The last paragraph of a message."""
        return f"{_KEY}{self.key}\n{_FENCE}{self.fence}\n{JOURNAL}{self.journal}@{self.cites}\n{_HEAD}{self.head}\n"


def mark_of(call: Call) -> Mark:
    """The mark of one attempt."""
    epoch, attempt = call.fence
    cites = f"{call.anchor.position}:{call.anchor.hash}" if call.anchor else ""
    return Mark(call.key, f"{epoch}.{attempt}", call.journal_id, cites, call.subject.head)


def searched_for(key: str) -> str:
    """The fixed text that every message with this key contains; the exact line is checked afterwards."""
    return f"{_KEY}{key}"


def marks_in(text: str) -> list[Mark]:
    """Read all marks of a message: each begins at its `Transition:` line, wherever in the message that stands."""
    found: list[Mark] = []
    for line in text.splitlines():
        if line.startswith(_KEY):
            found.append(Mark(line.removeprefix(_KEY).strip()))
        elif found and line.startswith(_FENCE):
            found[-1] = replace(found[-1], fence=line.removeprefix(_FENCE).strip())
        elif found and line.startswith(JOURNAL):
            journal, _, cites = line.removeprefix(JOURNAL).strip().partition("@")
            found[-1] = replace(found[-1], journal=journal, cites=cites)
        elif found and line.startswith(_HEAD):
            found[-1] = replace(found[-1], head=line.removeprefix(_HEAD).strip())
    return found


async def mark_at(repository: Repository, sha: str, key: str) -> Mark:
    """The mark for `key` on the commit or tag; an empty one when it carries none."""
    found = marks_in(await repository.object_text(sha))
    return next((mark for mark in found if mark.key == key), Mark(""))
