"""The tests; what they prove is listed in docs/traceability.md."""
