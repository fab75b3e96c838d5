"""Alerts and lessons: what a person must learn of, told at least once, derived from the log (FR-6)."""
