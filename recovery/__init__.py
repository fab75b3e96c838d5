"""Work that nobody is driving: replay at startup, plan, reaper, reconciler, explain, invariants, prove."""
