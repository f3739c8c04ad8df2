"""The control endpoint: how a test looks into the emulator and interferes with it. JSON in, JSON out.

GET  /instances[?after=N]     all instances; with `after`, waits (at most 30 s) until something changed since generation N
GET  /calls                   {"ec2:CreateFleet": 3, ...} since the last reset; dry runs as ec2:CreateFleet:DryRun
GET  /prices?type=&zone=&capacity_type=
GET  /messages?queue=         bodies in an SQS queue, oldest first; they stay there
POST /reset                   an empty account
POST /fixtures                {cluster, kubernetes_version, zones}: see fixtures.py
POST /pools                   [{instance_type, zone, capacity_type, remaining, code, message}]: replaces all of them
POST /prices                  [{instance_type, zone, capacity_type, price}]: adds to those set before
POST /faults                  [{action, times, when, hold, code, message, status}]: replaces all; releases held calls.
                              A dry run is an action of its own, CreateFleet:DryRun
POST /events                  {source, detail_type, detail, resources}: through EventBridge
POST /events/spot-interruption, /events/rebalance   {instance_id}
POST /events/state-change     {instance_id, state}
POST /announce                {enabled}: state-change events at every launch and termination by themselves
POST /terminate               {instance_id}: as if EC2 had taken the instance back
POST /protect                 {instance_id, enabled}: its owner's protection against termination
GET  /profiles                IAM's instance profiles: name, path, roles, tags
POST /profile-delay           {seconds}: until EC2 knows a new instance profile
POST /reservations            [{id, instance_type, zone, count, match, type, owner, tags, ends_in_seconds}]: replaces all; instances
                              in others run on, on demand
POST /placement-groups        [{id, name, strategy, partitions}]: replaces all
POST /zonal-shifts            the list that GetManagedResource answers
POST /policy                  [document]: every call outside of these is denied; none: everything is allowed
POST /limits                  {speed}: EC2's rate limits, on a clock that many times as fast, from buckets that others have emptied;
                              null: none
POST /full-subnets            [id]: subnets that have no free address, whatever EC2 said of them before; replaces all
GET  /reservations            as EC2 describes them
GET  /launch-templates        their tags by name
GET  /denials                 why calls were denied, and how many were throttled by action
POST /linger                  {enabled}: instances that are terminated stay in `shutting-down`, until it is taken back
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import requests
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2 import ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.iam.models import iam_backends
from moto.sqs import sqs_backends

import fixtures
import patches
import reservations
from cloud import Pool
from policy import Policy

LONGEST_WAIT = 30


class Control:
    def __init__(self, cloud, endpoint, region):
        self.cloud, self.endpoint, self.region = cloud, endpoint, region

    @property
    def backend(self):
        return ec2_backends[DEFAULT_ACCOUNT_ID][self.region]

    def get_instances(self, query):
        with self.cloud.changed:
            if "after" in query:
                self.cloud.changed.wait_for(lambda: self.cloud.generation > int(query["after"]), LONGEST_WAIT)
            generation = self.cloud.generation
        with patches._ec2:
            return {"generation": generation, "instances": [describe(instance) for instance in self.backend.all_instances()]}

    def get_calls(self, _query):
        with self.cloud.changed:
            holding = sum(fault.get("holding", 0) for fault in self.cloud.faults)
            return {"calls": dict(self.cloud.calls), "holding": holding}

    def get_prices(self, query):
        return {"price": self.cloud.price(query["type"], query["zone"], query["capacity_type"])}

    def get_messages(self, query):
        queue = sqs_backends[DEFAULT_ACCOUNT_ID][self.region].get_queue(query["queue"])
        return {"messages": [message.body for message in queue.messages]}

    def get_reservations(self, _query):
        with self.cloud.changed:
            return {"reservations": [dict(each) for each in self.cloud.reservations]}

    def get_launch_templates(self, _query):
        with patches._ec2:
            all_ = list(self.backend.launch_templates.values())
            return {"templates": {each.name: {tag["key"]: tag["value"] for tag in each.get_tags()} for each in all_}}

    def get_denials(self, _query):
        with self.cloud.changed:
            return {"denied": list(self.cloud.denied), "throttled": dict(self.cloud.buckets.refused)}

    def post_reservations(self, body):
        with self.cloud.changed:
            self.cloud.reservations = [reservations.reservation(each) for each in body]
        with patches._ec2:
            for instance in self.backend.all_instances():
                # One that has ended leaves its instances running, on demand.
                if getattr(instance, "capacity_reservation_id", None) not in {None, *(each["id"] for each in body)}:
                    instance.capacity_reservation_id = None
                    instance.capacity_reservation_specification = None
        return {}

    def post_placement_groups(self, body):
        with self.cloud.changed:
            self.cloud.placement_groups = [reservations.placement_group(each) for each in body]
        return {}

    def post_zonal_shifts(self, body):
        with self.cloud.changed:
            self.cloud.zonal_shifts = body
        return {}

    def post_full_subnets(self, body):
        with self.cloud.changed:
            self.cloud.full_subnets = set(body)
        return {}

    def post_policy(self, body):
        with self.cloud.changed:
            self.cloud.policy, self.cloud.denied = Policy(body, self.region), []
        return {}

    def post_limits(self, body):
        with self.cloud.changed:
            if body["speed"] is None:
                self.cloud.buckets.stop()
            else:
                self.cloud.buckets.start(body["speed"])
        return {}

    def post_reset(self, _body):
        self.cloud.reset()
        requests.post(f"{self.endpoint}/moto-api/reset", timeout=30).raise_for_status()
        self.cloud.bump()
        return {}

    def post_fixtures(self, body):
        return fixtures.create(self.endpoint, self.region, body["cluster"], body["kubernetes_version"], body["zones"])

    def post_pools(self, body):
        with self.cloud.changed:
            self.cloud.pools = {pool.key: pool for pool in (Pool(**entry) for entry in body)}
        return {}

    def post_prices(self, body):
        with self.cloud.changed:
            for entry in body:
                key = (entry["instance_type"], entry.get("zone") or "*", entry["capacity_type"])
                self.cloud.price_overrides[key] = entry["price"]
        return {}

    def post_faults(self, body):
        blank = {"times": 1, "when": "before", "hold": False, "code": None, "message": "set by a test", "status": None}
        with self.cloud.changed:
            for fault in self.cloud.faults:
                fault["released"] = True
            self.cloud.faults = [{**blank, **entry} for entry in body]
            self.cloud.changed.notify_all()
        return {}

    def post_events(self, body):
        entry = {
            "Source": body["source"],
            "DetailType": body["detail_type"],
            "Detail": json.dumps(body["detail"]),
            "Resources": body.get("resources") or [],
        }
        answer = fixtures.clients(self.endpoint, self.region)("events").put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            raise ValueError(f"EventBridge refused the event: {answer}")
        return {}

    def instance_event(self, instance_id, detail_type, **detail):
        return self.post_events(
            {
                "source": "aws.ec2",
                "detail_type": detail_type,
                "detail": {"instance-id": instance_id, **detail},
                "resources": [f"arn:aws:ec2:{self.region}:{DEFAULT_ACCOUNT_ID}:instance/{instance_id}"],
            }
        )

    def post_events_spot_interruption(self, body):
        return self.instance_event(
            body["instance_id"], "EC2 Spot Instance Interruption Warning", **{"instance-action": "terminate"}
        )

    def post_events_rebalance(self, body):
        return self.instance_event(body["instance_id"], "EC2 Instance Rebalance Recommendation")

    def post_events_state_change(self, body):
        return self.instance_event(body["instance_id"], "EC2 Instance State-change Notification", state=body["state"])

    def post_announce(self, body):
        with self.cloud.changed:
            starting = body["enabled"] and not self.cloud.announce
            self.cloud.announce = body["enabled"]
        if starting:
            threading.Thread(target=self.announce, daemon=True).start()
        return {}

    def announce(self):
        """Sends a state-change event for every change of an instance's state, as EC2 does."""
        seen = self.get_instances({})
        states = {instance["id"]: instance["state"] for instance in seen["instances"]}
        while self.cloud.announce:
            seen = self.get_instances({"after": seen["generation"]})
            for instance in seen["instances"]:
                if states.get(instance["id"]) != instance["state"]:
                    states[instance["id"]] = instance["state"]
                    steps = {"running": ["pending", "running"], "terminated": ["shutting-down", "terminated"]}
                    for state in steps.get(instance["state"], [instance["state"]]):
                        self.post_events_state_change({"instance_id": instance["id"], "state": state})

    def post_terminate(self, body):
        with patches._ec2:
            self.backend.terminate_instances([body["instance_id"]])
        self.cloud.bump()
        return {}

    def post_protect(self, body):
        with patches._ec2:
            self.backend.modify_instance_attribute(body["instance_id"], "disable_api_termination", body["enabled"])
        return {}

    def get_profiles(self, _query):
        profiles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].get_instance_profiles()
        return {
            "profiles": [
                {
                    "name": profile.name,
                    "path": profile.path,
                    "roles": [role.name for role in profile.roles],
                    "tags": {tag["Key"]: tag["Value"] for tag in profile.tags},
                }
                for profile in list(profiles)
            ]
        }

    def post_profile_delay(self, body):
        self.cloud.profile_delay = body["seconds"]
        return {}

    def post_linger(self, body):
        with patches._ec2:
            self.cloud.linger = body["enabled"]
            if not self.cloud.linger:
                for instance in self.backend.all_instances():
                    if instance.state == "shutting-down":
                        patches.set_state(instance, patches.TERMINATED)
        self.cloud.bump()
        return {}


def describe(instance):
    profile = instance.ec2_backend.iam_instance_profile_associations.get(instance.id)
    shape = INSTANCE_TYPES[instance.instance_type]
    return {
        "id": instance.id,
        "type": instance.instance_type,
        "cpus": shape["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": shape["MemoryInfo"]["SizeInMiB"],
        "zone": instance.availability_zone,
        "subnet": instance.subnet_id,
        "capacity_type": "spot" if instance.lifecycle == "spot" else "on-demand",
        "state": instance.state,
        "image": instance.image_id,
        "image_name": instance.ec2_backend.amis[instance.image_id].name,
        "gpus": sum(gpu["Count"] for gpu in (shape.get("GpuInfo") or {}).get("Gpus", [])),
        "devices": sorted(instance.block_device_mapping),
        "architecture": instance.architecture,
        "private_dns": instance.private_dns_name,
        "private_ip": instance.private_ip,
        "security_groups": sorted(group.id for group in instance.security_groups),
        "instance_profile": profile.iam_instance_profile.name if profile else None,
        "user_data": str(instance.user_data) if instance.user_data else None,
        "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
    }


def serve(control):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.answer("get")

        def do_POST(self):
            self.answer("post")

        def answer(self, verb):
            url = urlsplit(self.path)
            name = f"{verb}_{url.path.strip('/').replace('/', '_').replace('-', '_')}"
            method = getattr(control, name, None)
            try:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if method is None:
                    status, reply = 404, {"error": f"there is no {verb.upper()} {url.path}"}
                elif verb == "get":
                    status, reply = 200, method({key: values[0] for key, values in parse_qs(url.query).items()})
                else:
                    status, reply = 200, method(json.loads(body or b"{}"))
            except Exception as error:  # The test must see what went wrong, whatever it was.
                status, reply = 500, {"error": f"{type(error).__name__}: {error}"}
            text = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server
