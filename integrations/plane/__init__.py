"""Plane as tracker: people ask in it, and it shows where a task is. It decides nothing (R70, R73-R75)."""
