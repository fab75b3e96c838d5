"""What deploys of a journal show: the epochs in the INITIATED markers of one folder (S8, V8)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from integrations.deploy.markers import UnreadableError, all_initiated
from journal.errors import StoreUnavailableError


@dataclass(frozen=True, slots=True)
class MarkerTraces:
    """One folder of deploy markers."""

    folder: Path

    @property
    def name(self) -> str:
        return f"deploy markers {self.folder.name}"

    async def greatest(self, journal_id: str) -> int:
        """
        The greatest epoch in a marker of this journal.

        Raises:
            StoreUnavailableError: The folder or one of its markers cannot be believed.
        """
        try:
            markers, bad = all_initiated(self.folder)
        except UnreadableError as error:
            raise StoreUnavailableError(path=error.what, why=error.why) from error
        if bad:
            raise StoreUnavailableError(path=bad[0], why="is a marker that cannot be believed")
        return max((marker.epoch for marker in markers if marker.journal == journal_id), default=0)
