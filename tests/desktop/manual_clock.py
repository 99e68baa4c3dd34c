"""A clock that tests move by hand, with calls that fall due as it moves."""

from __future__ import annotations

from collections.abc import Callable


class ManualClock:
    """Seconds since the test began.

    Attributes:
        now_s: the time.
        due: calls to come, with their times.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now_s

    def schedule(self, wait_s: float, call: Callable[[], None]) -> None:
        """Take a call that falls due after `wait_s`."""
        self.due.append((self.now_s + wait_s, call))

    def advance(self, seconds: float) -> None:
        """Move on, making the calls that fall due on the way, in order."""
        target = self.now_s + seconds
        while True:
            ripe = sorted((item for item in self.due if item[0] <= target), key=lambda i: i[0])
            if not ripe:
                break
            self.due.remove(ripe[0])
            self.now_s = max(self.now_s, ripe[0][0])
            ripe[0][1]()
        self.now_s = target
