"""The event log: schema, chain, the one writer, SQLite and PostgreSQL."""
