"""EC2's own rate limits: one token bucket for each kind of call, at the rates that are published."""

import time

# Kind -> tokens a second, size of the bucket.
RATES = {
    "read": (20, 100),
    "write": (5, 50),
    "RunInstances": (2, 5),
    "CreateTags": (10, 100),
    "TerminateInstances": (5, 100),
}


class Buckets:
    """Off until a test switches them on; the clock may run faster than the wall's, so that minutes pass in seconds.

    They begin empty: others use the account, too.
    """

    def __init__(self):
        self.speed = None
        self.levels = {}
        self.refused = {}

    def start(self, speed):
        self.speed, self.levels, self.refused = speed, {}, {}

    def stop(self):
        self.speed = None

    def take(self, action):
        """Whether the call may pass; the caller holds the cloud's lock."""
        if self.speed is None:
            return True
        kind = action if action in RATES else "read" if action.startswith("Describe") else "write"
        rate, size = RATES[kind]
        now = time.monotonic() * self.speed
        level, at = self.levels.get(kind, (0, now))
        level = min(size, level + (now - at) * rate)
        passes = level >= 1
        self.levels[kind] = (level - 1 if passes else level, now)
        if not passes:
            self.refused[action] = self.refused.get(action, 0) + 1
        return passes
