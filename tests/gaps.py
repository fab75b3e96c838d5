"""What no test proves yet, each with its reason; a test fails when an entry is missing here or no longer needed."""

GAPS: dict[str, str] = {}
