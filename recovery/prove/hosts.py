"""
Each actor on a host of its own: no lock is common, an owner is only suspected, and it may wake up (M1, M2).

An actor's host still has file locks: whoever takes the task there knows that no child of its own host is left. Of
other hosts nothing is certain, but for one that does nothing, has no child, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.words import Standing
from recovery.prove.world import NAMES, NOBODY, World, spend

Seen = tuple[str, bool, Standing, World]
"""What it is called, whether it is a misfortune, what one host believes of another, and the world after it."""


def can_lock(w: World, i: int) -> bool:
    """Only the children of its own host can hold a host's file lock."""
    return all(r.host != i for r in w.net)


def owner_seen(w: World, i: int) -> Iterator[Seen]:
    """What a host believes of the owner that the journal names."""
    owner = w.task.owner
    if not owner or owner[0] == NAMES[i]:
        yield "", False, Standing.GONE, w
        return
    a = w.actors[NAMES.index(owner[0])]
    drives = a.mind is not None and a.mind.run.me.run == owner and bool(a.mind.run.epoch)
    if not drives or a.frozen:
        yield ", its owner is silent", False, Standing.SUSPECT, w
        return
    yield ", its owner lives", False, Standing.ALIVE, w
    if w.left.suspicion:
        yield ", its living owner is suspected", True, Standing.SUSPECT, spend(w, "suspicion")


def carrier_seen(w: World, i: int) -> Iterator[Seen]:
    """What a host believes of whoever began the open attempt."""
    if w.carrier in (NOBODY, i):
        yield "", False, Standing.GONE, w
        return
    yield ", not proven", False, Standing.SUSPECT, w
    if w.actors[w.carrier].mind is None and can_lock(w, w.carrier):
        yield ", proven", False, Standing.GONE, w
