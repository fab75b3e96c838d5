"""The log on a PostgreSQL server: tables, connections, appends and the tail (DESIGN 10, decision 0017)."""
