"""
Settings: `journal.toml`, the `ORCH_*` environment, and the built-in defaults (CONTRACT "Configuration").

Everything is checked when it is loaded; a fault names the file, the key and the remedy, and nothing starts. Secrets
come from the environment or from files it names, never from `journal.toml`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from integrations.host.config import HostConfig, Scope
from integrations.sections import FileSettings, describe
from journal.errors import InvalidInputError, PipelineError
from journal.log.postgres.connect import Server

DEFAULT_FILE = Path("journal.toml")


def _csv(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class Environment(BaseSettings):
    """The `ORCH_*` variables; they win over the file."""

    model_config = SettingsConfigDict(env_prefix="ORCH_", frozen=True, extra="ignore")

    transition_journal_enabled: bool = True  # off: a host does as before; without one `serve` refuses
    # A list with commas, `*` = all; unset = all when standing alone, none in a host's database.
    transition_journal_repos: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_csv)] = None
    reaper_max_running_s: int | None = None
    reaper_finalize_grace_s: int | None = None
    db: Path | None = None
    dsn: str = Field(default="", repr=False)
    dsn_file: Path | None = None
    host: str | None = None
    port: int | None = Field(default=None, ge=0, le=65535)
    running_version: str = ""
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    operator_token: str = Field(default="", repr=False)
    operator_file: Path | None = None  # a file that holds the operator's token
    reader_token: str = Field(default="", repr=False)  # opens reading and nothing else
    reader_file: Path | None = None
    gitea_token: str = Field(default="", repr=False)
    gitea_token_file: Path | None = None
    gitea_webhook_secret: str = Field(default="", repr=False)
    gitea_webhook_secret_file: Path | None = None
    plane_token: str = Field(default="", repr=False)
    plane_token_file: Path | None = None
    plane_webhook_secret: str = Field(default="", repr=False)
    plane_webhook_secret_file: Path | None = None
    telegram_token: str = Field(default="", repr=False)
    telegram_token_file: Path | None = None


class Settings(BaseModel):
    """What the program runs with: file and environment together, paths made absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Path | None  # None = built-in defaults
    base: Path  # relative paths in the file are relative to its folder
    values: FileSettings
    environment: Environment

    @property
    def db(self) -> Path:
        if self.environment.db:
            return self.environment.db.absolute()
        return self.path(self.values.host.db if self.values.host else self.values.journal.db)

    @property
    def dsn(self) -> str:
        """Where the log lies on a server; "" = nowhere was named."""
        return _secret("ORCH_DSN_FILE", self.environment.dsn, self.environment.dsn_file) or self.values.journal.dsn

    @property
    def server(self) -> Server | None:
        """The server that holds the log; None = it lies in the file."""
        section = self.values.journal
        return Server(self.dsn, section.standbys) if section.engine == "postgres" else None

    @property
    def overlay(self) -> HostConfig | None:
        """The host whose database this is, with the file that is really used."""
        return self.values.host.model_copy(update={"db": self.db}) if self.values.host else None

    @property
    def scope(self) -> Scope:
        """Which repositories take part: unset means all when standing alone, and none in a host's database (FR-7)."""
        repos = self.environment.transition_journal_repos
        if repos is None:
            repos = () if self.values.host else ("*",)
        return Scope(self.environment.transition_journal_enabled, frozenset(repos))

    @property
    def host(self) -> str:
        return self.environment.host or self.values.serve.host

    @property
    def port(self) -> int:
        return self.values.serve.port if self.environment.port is None else self.environment.port

    @property
    def operator_token(self) -> str:
        """The operator's token, from the environment or the file it names; "" = none."""
        return _secret("ORCH_OPERATOR_FILE", self.environment.operator_token, self.environment.operator_file)

    @property
    def reader_token(self) -> str:
        """A token that only reads; "" = none."""
        return _secret("ORCH_READER_FILE", self.environment.reader_token, self.environment.reader_file)

    @property
    def gitea_token(self) -> str:
        """The token for the forge's API and repositories; "" = none."""
        return _secret("ORCH_GITEA_TOKEN_FILE", self.environment.gitea_token, self.environment.gitea_token_file)

    @property
    def gitea_webhook_secret(self) -> str:
        """What the forge signs its webhooks with; "" = none are accepted (R72)."""
        env = self.environment
        return _secret("ORCH_GITEA_WEBHOOK_SECRET_FILE", env.gitea_webhook_secret, env.gitea_webhook_secret_file)

    @property
    def plane_token(self) -> str:
        """The key for the tracker's API; "" = none."""
        return _secret("ORCH_PLANE_TOKEN_FILE", self.environment.plane_token, self.environment.plane_token_file)

    @property
    def plane_webhook_secret(self) -> str:
        """What the tracker signs its webhooks with; "" = none are accepted (R72)."""
        env = self.environment
        return _secret("ORCH_PLANE_WEBHOOK_SECRET_FILE", env.plane_webhook_secret, env.plane_webhook_secret_file)

    @property
    def telegram_token(self) -> str:
        """The bot that alerts are sent by; "" = none."""
        return _secret(
            "ORCH_TELEGRAM_TOKEN_FILE", self.environment.telegram_token, self.environment.telegram_token_file
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must never be stored or logged."""
        forge, tracker = (self.gitea_token, self.gitea_webhook_secret), (self.plane_token, self.plane_webhook_secret)
        own = (self.operator_token, self.reader_token, self.server.password if self.server else "")
        return tuple(s for s in (*own, *forge, *tracker, self.telegram_token) if s)

    def path(self, path: Path) -> Path:
        """A path of the file as an absolute one."""
        return path if path.is_absolute() else (self.base / path).absolute()


def _secret(name: str, value: str, file: Path | None) -> str:
    """A secret from the environment, else from the file that variable `name` points to."""
    if value or file is None:
        return value
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(what=name, why=f"cannot be read: {error}") from error


def load(file: Path | None = None, *, db: Path | None = None, environment: Environment | None = None) -> Settings:
    """
    Load and check the settings.

    Args:
        file: The configuration file; None takes `journal.toml` here if it exists, else the built-in defaults.
        db: Wins over file and environment (the `--db` option).
        environment: The `ORCH_*` variables; read from the process by default.

    Raises:
        InvalidInputError: With the file, the key and the remedy.
    """
    chosen = file or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    data = _read(chosen) if chosen else {}
    try:
        values = FileSettings.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(what=str(chosen), why=describe(error)) from error
    env = environment or _environment()
    pipeline = values.pipeline.model_copy(
        update={
            name: value
            for name in ("reaper_max_running_s", "reaper_finalize_grace_s")
            if (value := getattr(env, name)) is not None
        }
    )
    if db is not None:
        env = env.model_copy(update={"db": db})
    base = chosen.absolute().parent if chosen else Path.cwd()
    values = values.model_copy(update={"pipeline": pipeline})
    settings = Settings(file=chosen, base=base, values=values, environment=env)
    _check_engine(settings)
    return settings if chosen else _beside_the_journal(settings)


def _beside_the_journal(settings: Settings) -> Settings:
    """Without a file, the markers of deploys lie beside the journal as its locks do, wherever `serve` was started."""
    markers = str(settings.db.with_name(f"{settings.db.name}.deploys"))
    steps = {n: t | {"folder": markers} if "folder" in t else t for n, t in settings.values.steps.items()}
    return settings.model_copy(update={"values": settings.values.model_copy(update={"steps": steps})})


def _check_engine(settings: Settings) -> None:
    """
    Ask of the engine what no single key can be asked.

    Raises:
        InvalidInputError: A server without a DSN, a DSN without its engine, or a server beside a host's database.
    """
    section, where = settings.values.journal, f"{settings.file or 'built-in defaults'}: journal"
    if section.engine == "sqlite":
        if section.dsn or section.standbys:
            key = "dsn" if section.dsn else "standbys"
            raise InvalidInputError(what=f"{where}.{key}", why='is for engine = "postgres"; set that, or remove it')
        return
    if not settings.dsn:
        why = "is missing; set it to postgresql://ROLE@HOST/DATABASE, or ORCH_DSN_FILE to a file that holds it"
        raise InvalidInputError(what=f"{where}.dsn", why=why)
    if settings.values.host is not None:
        why = 'a journal in a host\'s database shares its transactions; use engine = "sqlite" there'
        raise InvalidInputError(what=f"{where}.engine", why=why)


def _environment() -> Environment:
    try:
        return Environment()
    except ValidationError as error:
        first = error.errors()[0]
        name = f"ORCH_{'_'.join(map(str, first['loc'])).upper()}"
        raise InvalidInputError(what=name, why=first["msg"]) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InvalidInputError(what=str(file), why="no such file; `journal init` writes one") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(what=str(file), why=f"cannot be read: {error}") from error


def pipeline_fault(settings: Settings, error: PipelineError) -> InvalidInputError:
    """A fault of the pipeline with the file it stands in."""
    return InvalidInputError(what=f"{settings.file or 'built-in defaults'}: {error.where}", why=error.why)
