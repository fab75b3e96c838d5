"""Views derived from the log and nothing else: dropped and rebuilt at will, asked by people, never by deciders."""

from __future__ import annotations

from journal.projection import Projection
from projections.tasks import TasksView


def all_views() -> tuple[Projection, ...]:
    """Every view, to be handed to `Journal.open`; one set for one journal, since views remember rows."""
    return (TasksView(),)
