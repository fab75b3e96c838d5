"""Benchmarks: every figure is a ratio, measured in one run against the raw limit or a peer (`make bench`)."""
