"""
Which merge calls may still land although we no longer wait for them (gitea.md 1.3; PROTOCOL 4.7 "drain bound").

A server that was cut off moves the branch seconds later (git-facts 8). So absence is an answer only once the call's
work has ended or the settle time has passed; a process that did not send the call itself counts from its first look.
Remembering can only make a question wait; it never answers one.
"""

from __future__ import annotations

from journal.ports import Call, Clock


class Flights:
    """The last attempt of each key that is in doubt, and until when it may land."""

    def __init__(self, clock: Clock, settle_s: float) -> None:
        self._clock, self._settle_s = clock, settle_s
        self._until: dict[str, tuple[int, float]] = {}

    def began(self, call: Call) -> None:
        """The call is about to be sent: until its end is seen it counts as in flight."""
        self._until[call.key] = (call.attempt, self._clock.monotonic_s() + call.budget_s + self._settle_s)

    def cut_off(self, call: Call) -> None:
        """We stopped listening; the server may go on."""
        self._until[call.key] = (call.attempt, self._clock.monotonic_s() + self._settle_s)

    def ended(self, call: Call) -> None:
        """The server answered, so it is done with it."""
        self._until[call.key] = (call.attempt, 0.0)

    def forget(self, call: Call) -> None:
        """The world has shown the effect."""
        self._until.pop(call.key, None)

    def left_s(self, call: Call) -> int:
        """Seconds for which the open attempt may still land, rounded up; 0 = it cannot, or no attempt is open."""
        if call.anchor is None:
            return 0
        attempt, until_s = self._until.get(call.key, (0, 0.0))
        if attempt != call.attempt:
            self.cut_off(call)
            return self.left_s(call)
        return max(0, int(until_s - self._clock.monotonic_s() + 0.999))
