"""What shall run, what runs, and whether the one includes the other."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from journal.ports import Call

Running = Callable[[], Awaitable[str | None]]
"""Asks for the commit that runs now; None = cannot tell. Handed in by the composition root; never raises."""
IsAncestor = Callable[[str, str], Awaitable[bool | None]]
"""Asks whether the first commit is an ancestor of the second; None = cannot tell. Never raises."""
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


def outcome(call: Call, step: str, name: str) -> str:
    """Read one piece of an earlier step's evidence; "" when it is not there."""
    value = dict(call.outcomes.get(step, ())).get(name)
    return value if isinstance(value, str) else ""


def target_of(call: Call, merge_step: str) -> str:
    """Name the commit to be deployed: what the merge landed; "" when that is not known."""
    landed = outcome(call, merge_step, "landed")
    return landed if _COMMIT.match(landed) else ""


async def includes(commit: str, target: str, is_ancestor: IsAncestor) -> bool | None:
    """Tell whether a commit is the target or a descendant of it; None = cannot tell."""
    if commit == target:
        return True
    return await is_ancestor(target, commit) if _COMMIT.match(commit) else None
