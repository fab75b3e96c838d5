"""Several machines on one journal: who else is alive, and whether we may still act (PROTOCOL 9, DESIGN 10)."""
