"""What the emulator's cloud has that moto's does not: prices, capacity pools, faults, and a record of calls."""

import hashlib
import threading

from moto.ec2.models.instance_types import INSTANCE_TYPES

from limits import Buckets
from policy import Policy

ON_DEMAND, SPOT = "on-demand", "spot"
# Access key of the account's owner, whom neither policy nor rate limits concern: what a test does before and beside the product.
OWNER = "owner"
# Seconds until EC2 knows a new instance profile: IAM is one for all regions, and tells them later.
PROFILE_DELAY = 2.0


def fraction(text):
    """A fixed number in [0, 1) for a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


class Pool:
    """A capacity pool, or all pools that match: `*` is any. The first failure's code is what a launch gets."""

    def __init__(self, instance_type="*", zone="*", capacity_type="*", remaining=0, code=None, message=None):
        self.key = (instance_type, zone, capacity_type)
        self.remaining = remaining
        self.code = code or "InsufficientInstanceCapacity"
        self.message = message

    def describe(self, override_type, zone):
        return self.message or (
            f"We currently do not have sufficient {override_type} capacity in the Availability Zone you requested ({zone})."
        )


class Cloud:
    """State that the control endpoint sets and the emulated API reads. `changed` guards all of it."""

    def __init__(self, on_demand_prices):
        self.changed = threading.Condition()
        self.base_prices = dict(on_demand_prices)
        self.reset()

    def reset(self):
        with self.changed:
            self.generation = getattr(self, "generation", 0) + 1
            self.price_overrides = {}
            self.pools = {}
            # A held call must not wait for a release that nobody will send any more.
            for fault in getattr(self, "faults", []):
                fault["released"] = True
            self.faults = []
            self.calls = {}
            self.fleet_tokens = {}
            self.reservations = []
            self.placement_groups = []
            self.zonal_shifts = []
            self.full_subnets = set()
            self.policy = Policy([], "")
            self.denied = []
            self.buckets = Buckets()
            self.announce = False
            self.linger = False
            self.profile_delay = PROFILE_DELAY
            self.changed.notify_all()

    def bump(self):
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    # Prices, in dollars per hour.

    def on_demand_price(self, instance_type):
        if instance_type in self.base_prices:
            return self.base_prices[instance_type]
        shape = INSTANCE_TYPES[instance_type]
        # Types without a listed price: near what a general purpose type costs per CPU and GiB.
        return round(shape["VCpuInfo"]["DefaultVCpus"] * 0.036 + shape["MemoryInfo"]["SizeInMiB"] / 1024 * 0.004, 6)

    def price(self, instance_type, zone, capacity_type):
        override = self.price_overrides.get((instance_type, zone, capacity_type))
        if override is None:
            override = self.price_overrides.get((instance_type, "*", capacity_type))
        if override is not None:
            return override
        price = self.on_demand_price(instance_type)
        if capacity_type == SPOT:
            price *= 0.3 + 0.4 * fraction(f"{instance_type}/{zone}")
        return round(price, 6)

    # Capacity.

    def pool(self, instance_type, zone, capacity_type):
        """The pool set for this offering, the most specific one first; None: unlimited."""
        for kind in (instance_type, "*"):
            for place in (zone, "*"):
                for capacity in (capacity_type, "*"):
                    pool = self.pools.get((kind, place, capacity))
                    if pool is not None:
                        return pool
        return None

    # Faults and calls.

    def begin(self, service, action):
        """Counts a call and takes the fault that is due for it, if any."""
        with self.changed:
            name = f"{service}:{action}"
            self.calls[name] = self.calls.get(name, 0) + 1
            fault = next((fault for fault in self.faults if fault["action"] == action and fault["times"] > 0), None)
            if fault is not None:
                fault["times"] -= 1
            self.changed.notify_all()
            return fault

    def throttled(self, action):
        """Whether a call to EC2 comes too early for its rate limit."""
        with self.changed:
            return not self.buckets.take(action)

    def refusal(self, service, action, params, account):
        """Why the policy does not allow a call; `None` if it does."""
        with self.changed:
            policy = self.policy
        reason = policy.denial(service, action, params, account)
        if reason:
            # The log is kept when a story fails.
            print("denied:", reason, flush=True)
            with self.changed:
                self.denied.append(reason)
        return reason

    def hold(self, fault):
        """Blocks until the fault is released."""
        with self.changed:
            fault["holding"] = fault.get("holding", 0) + 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: fault.get("released"))
            fault["holding"] -= 1
