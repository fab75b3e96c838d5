"""Container images as facts: built for a commit, told by tag and label together (R98)."""
