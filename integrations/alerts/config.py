"""Where alerts and lessons go (`[integrations.alerts]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]


class AlertsConfig(BaseModel):
    """Telegram's token comes from ORCH_TELEGRAM_TOKEN, or the file ORCH_TELEGRAM_TOKEN_FILE."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    telegram_chat: str = Field(default="", pattern=r"^(-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64})?$")  # "" = no alerts
    telegram_api: str = Field(default="https://api.telegram.org", pattern=r"^https?://[^\s/?#@]+$")
    task_url: str = Field(default="", pattern=r"^(https?://\S+)?$")  # {task} is filled in; "" = no link
    lessons_db: Path | None = None  # an SQLite database of the host with a table of lessons; None = no lessons
    lessons_table: _Identifier = "lessons"
    lessons_text: _Identifier = "text"  # the column that takes the lesson's text
    lessons_source: _Identifier = "source"  # the column that takes "auto"

    @model_validator(mode="after")
    def _names_the_task(self) -> Self:
        if self.task_url and "{task}" not in self.task_url:
            message = "task_url must hold {task}"
            raise ValueError(message)
        return self
