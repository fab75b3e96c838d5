"""Scratch until the facade lands."""
