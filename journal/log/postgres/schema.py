"""
The tables on the server: append-only, dense, guarded by triggers that hold on any connection; numbered migrations.

`journal_head` is the one counter: every INSERT locks its row first, so positions are dense and commit in order, which
sequences give nobody (M4). Whoever reads up to a position has therefore read all there will ever be up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from journal.errors import DamagedError, NewerSchemaError, StoreUnavailableError
from journal.log.schema import COLUMNS

CHANNEL = "journal_events"
"""NOTIFY goes here with the last position; only a nudge, the table is the truth."""

_EVENTS = """
CREATE TABLE journal_head (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL,
    hash bytea NOT NULL CHECK (length(hash) = 32),
    looks bigint NOT NULL DEFAULT 0
);
INSERT INTO journal_head (position, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

CREATE TABLE journal_events (
    position bigint PRIMARY KEY,
    task text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    generation bigint NOT NULL,
    epoch bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    schema bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    body_hash bytea NOT NULL CHECK (body_hash = sha256(convert_to(body, 'UTF8'))),
    at bigint NOT NULL,
    prev_hash bytea NOT NULL CHECK (length(prev_hash) = 32),
    hash bytea NOT NULL CHECK (length(hash) = 32)
);
CREATE UNIQUE INDEX journal_events_by_task ON journal_events (task, version);
CREATE UNIQUE INDEX journal_one_opened ON journal_events (lower(task)) WHERE kind = 'opened';
CREATE UNIQUE INDEX journal_one_acquired ON journal_events (task, epoch) WHERE kind = 'acquired';
CREATE UNIQUE INDEX journal_one_intended ON journal_events (task, generation, step, attempt) WHERE kind = 'intended';
CREATE UNIQUE INDEX journal_one_applied ON journal_events (task, generation, step) WHERE kind = 'applied';

CREATE FUNCTION journal_events_lock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        RAISE EXCEPTION 'journal: a commit could be lost with synchronous_commit=%',
            current_setting('synchronous_commit');
    END IF;
    PERFORM FROM journal_head FOR UPDATE;
    RETURN NULL;
END $$;
CREATE FUNCTION journal_events_next() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    last record;
BEGIN
    SELECT position, hash INTO last FROM journal_events ORDER BY position DESC LIMIT 1;
    IF NEW.position <> coalesce(last.position, 0) + 1 THEN
        RAISE EXCEPTION 'journal: position is not the next one' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.version <> (SELECT coalesce(max(version), 0) + 1 FROM journal_events WHERE task = NEW.task) THEN
        RAISE EXCEPTION 'journal: version is not the next one of its task' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.position > 1 AND NEW.prev_hash <> last.hash THEN
        RAISE EXCEPTION 'journal: prev_hash is not the hash of the event before' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION journal_events_count() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    last record;
BEGIN
    SELECT position, hash INTO last FROM journal_events ORDER BY position DESC LIMIT 1;
    UPDATE journal_head SET position = last.position, hash = last.hash WHERE position <> last.position;
    IF FOUND THEN
        PERFORM pg_notify('journal_events', last.position::text);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION journal_events_stay() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'journal: events are never updated, deleted or truncated' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER journal_events_lock BEFORE INSERT ON journal_events
    FOR EACH STATEMENT EXECUTE FUNCTION journal_events_lock();
CREATE TRIGGER journal_events_next BEFORE INSERT ON journal_events
    FOR EACH ROW EXECUTE FUNCTION journal_events_next();
CREATE TRIGGER journal_events_count AFTER INSERT ON journal_events
    FOR EACH STATEMENT EXECUTE FUNCTION journal_events_count();
CREATE TRIGGER journal_events_stay BEFORE UPDATE OR DELETE ON journal_events
    FOR EACH ROW EXECUTE FUNCTION journal_events_stay();
CREATE TRIGGER journal_events_keep BEFORE TRUNCATE ON journal_events
    FOR EACH STATEMENT EXECUTE FUNCTION journal_events_stay();
ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_lock;
ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_next;
ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_count;
ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_stay;
ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_keep;

CREATE FUNCTION journal_append(
    before bigint, before_hash bytea, positions bigint[], tasks text[], versions bigint[], generations bigint[],
    epochs bigint[], kinds text[], schemas bigint[], steps text[], attempts bigint[], keys text[], actors text[],
    bodies text[], body_hashes bytea[], ats bigint[], prev_hashes bytea[], hashes bytea[]
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    head record;
BEGIN
    SELECT position, hash INTO head FROM journal_head FOR UPDATE;
    IF head.position <> before OR head.hash <> before_hash THEN
        RETURN head.position;
    END IF;
    INSERT INTO journal_events SELECT * FROM unnest(
        positions, tasks, versions, generations, epochs, kinds, schemas, steps, attempts, keys, actors, bodies,
        body_hashes, ats, prev_hashes, hashes);
    RETURN -1;
END $$;
CREATE FUNCTION journal_lock() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    reached bigint;
BEGIN
    UPDATE journal_head SET looks = looks + 1 RETURNING position INTO reached;
    RETURN reached;
END $$;

REVOKE ALL ON journal_events, journal_head FROM PUBLIC;
REVOKE UPDATE, DELETE, TRUNCATE ON journal_events FROM CURRENT_USER;
REVOKE EXECUTE ON FUNCTION journal_lock() FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION journal_append(
    bigint, bytea, bigint[], text[], bigint[], bigint[], bigint[], text[], bigint[], text[], bigint[], text[], text[],
    text[], bytea[], bigint[], bytea[], bytea[]) FROM PUBLIC;
"""

_INSTANCES = """
CREATE TABLE journal_instances (
    instance text COLLATE "C" PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    ground text NOT NULL,
    address text NOT NULL,
    session bigint NOT NULL,
    beat_at timestamptz NOT NULL,
    ended text NOT NULL DEFAULT '',
    marks jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX journal_instances_by_beat ON journal_instances (beat_at);
REVOKE ALL ON journal_instances FROM PUBLIC;
"""
"""Who shares the journal (`journal.hosts`): a late row costs a suspicion, never a verdict, so anybody may update it."""

_ROLES = """
CREATE FUNCTION journal_admit(role text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    EXECUTE format('GRANT SELECT ON journal_events, journal_head, journal_migrations TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON journal_instances TO %I', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION journal_append, journal_lock TO %I', role);
END $$;
REVOKE EXECUTE ON FUNCTION journal_admit FROM PUBLIC;
"""
"""What a service's role needs, in one call by the owner: it appends through the function and in no other way."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One additive step of the schema."""

    number: int
    name: str
    script: str
    needs: int
    """The oldest schema number a program must know to go on working beside it: equal to `number` unless it may stay
    ignorant of it (a rolling upgrade)."""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "events", _EVENTS, 1),
    Migration(2, "instances", _INSTANCES, 2),
    Migration(3, "roles", _ROLES, 2),
)
SCHEMA_NUMBER = MIGRATIONS[-1].number

APPEND = f"SELECT journal_append($1, $2, {', '.join(f'${n}' for n in range(3, 19))})"
AFTER = f"SELECT {COLUMNS} FROM journal_events WHERE position > $1 ORDER BY position LIMIT $2"  # noqa: S608
"""Rows in the order of `schema.COLUMNS`, as on SQLite."""

_MIGRATION_LOCK = 0x544A4C31
"""Advisory lock of whoever migrates: services on many hosts may start at once."""

_GUARDS = frozenset(
    {
        "journal_events_lock", "journal_events_next", "journal_events_count", "journal_events_stay",
        "journal_events_keep", "journal_events_by_task", "journal_one_opened", "journal_one_acquired",
        "journal_one_intended", "journal_one_applied",
    }
)  # fmt: skip
_PRESENT = """
SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass('journal_events') AND tgenabled = 'A'
UNION ALL SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = to_regclass('journal_events') AND indisunique AND indisvalid
"""

_RIGHTS = """
SELECT 'SELECT on ' || name, has_table_privilege(to_regclass(name), 'SELECT')
    FROM unnest(ARRAY['journal_migrations', 'journal_events', 'journal_head', 'journal_instances']) name
    WHERE to_regclass(name) IS NOT NULL
UNION ALL SELECT 'EXECUTE on ' || proname, has_function_privilege(oid, 'EXECUTE')
    FROM pg_proc WHERE proname IN ('journal_append', 'journal_lock') AND pronamespace = current_schema()::regnamespace
"""


async def schema_number(db: Any) -> tuple[int, int]:
    """The newest migration on the server and the schema number it asks of a program; (0, 0) = no journal there."""
    if await db.fetchval("SELECT to_regclass('journal_migrations')") is None:
        return 0, 0
    row = await db.fetchrow("SELECT coalesce(max(number), 0), coalesce(max(needs), 0) FROM journal_migrations")
    return int(row[0]), int(row[1])


async def check(db: Any, shown: str) -> int:
    """
    The schema number on the server, which this program can work with.

    Args:
        db: An asyncpg connection.
        shown: The server, for messages.

    Raises:
        NewerSchemaError: A newer program must write here.
        DamagedError: Triggers or indexes that guard the events are gone or switched off.
    """
    number, needs = await schema_number(db)
    if needs > SCHEMA_NUMBER:
        raise NewerSchemaError(path=shown, found=number, known=SCHEMA_NUMBER)
    if number and (lacking := _GUARDS - {row[0] for row in await db.fetch(_PRESENT)}):
        why = f"the event table is not ours: {', '.join(sorted(lacking))} missing or switched off"
        raise DamagedError(path=shown, why=why)
    return number


async def lacking_rights(db: Any) -> list[str]:
    """What this role may not do although a service must; the tables are there."""
    rows = await db.fetch(_RIGHTS)
    return [row[0] for row in rows if not row[1]]


async def migrate(db: Any, shown: str) -> None:
    """
    Bring the database to this program's schema in one transaction; nothing happens if it is there already.

    Raises:
        StoreUnavailableError: The role may not make tables.
        NewerSchemaError, DamagedError: As `check` says.
    """
    import asyncpg

    if await check(db, shown) >= SCHEMA_NUMBER:
        return
    try:
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
            await db.execute(
                "CREATE TABLE IF NOT EXISTS journal_migrations "
                "(number bigint PRIMARY KEY, name text NOT NULL, needs bigint NOT NULL)"
            )
            present, _ = await schema_number(db)
            for step in MIGRATIONS:
                if step.number > present:
                    await db.execute(step.script)
                    await db.execute(
                        "INSERT INTO journal_migrations VALUES ($1, $2, $3)", step.number, step.name, step.needs
                    )
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreUnavailableError(
            path=shown,
            why=f"holds no journal of schema {SCHEMA_NUMBER}, and this role may not make it ({error})",
            remedy="run `journal init` once with the DSN of the role that owns the schema (docs/how-to/postgresql.md)",
        ) from error
    await check(db, shown)
