"""Coverage as a far side: reports read into counts, a baseline that only goes up, and the gate against drops."""
