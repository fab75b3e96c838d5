"""Steps performed and probed by commands of the user's own (DESIGN 6)."""

from __future__ import annotations

from integrations.command.config import CommandConfig
from integrations.command.step import CommandStep, FenceNotInstalledError

__all__ = ["CommandConfig", "CommandStep", "FenceNotInstalledError"]
