"""The journal in a host's database: additive tables, stages written in our transaction (DESIGN 9). See `overlay`."""
