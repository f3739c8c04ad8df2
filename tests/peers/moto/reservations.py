"""Capacity reservations and placement groups, which moto's EC2 does not have. The control endpoint makes them."""

import datetime

from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response


def install(cloud):
    def describe_capacity_reservations(self):
        ids = set(self._get_param("CapacityReservationIds", []) or [])
        filters = self._filters_from_querystring()
        with cloud.changed:
            all_ = [dict(each) for each in cloud.reservations]
        missing = ids - {each["CapacityReservationId"] for each in all_}
        if missing:
            raise EC2ClientError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{min(missing)}' does not exist.")
        found = [each for each in all_ if (not ids or each["CapacityReservationId"] in ids) and matches(each, filters)]
        return ActionResult({"CapacityReservations": found})

    def describe_placement_groups(self):
        names = set(self._get_param("GroupNames", []) or [])
        ids = set(self._get_param("GroupIds", []) or [])
        with cloud.changed:
            all_ = [dict(each) for each in cloud.placement_groups]
        missing = (names - {each["GroupName"] for each in all_}) | (ids - {each["GroupId"] for each in all_})
        if missing:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{min(missing)}' is unknown.")
        found = [
            each
            for each in all_
            if (not names or each["GroupName"] in names) and (not ids or each["GroupId"] in ids)
        ]
        return ActionResult({"PlacementGroups": found})

    EC2Response.describe_capacity_reservations = describe_capacity_reservations
    EC2Response.describe_placement_groups = describe_placement_groups


def matches(reservation, filters):
    tags = {tag["Key"]: tag["Value"] for tag in reservation.get("Tags", [])}
    fields = {
        "state": reservation["State"],
        "owner-id": reservation["OwnerId"],
        "instance-match-criteria": reservation["InstanceMatchCriteria"],
    }
    for name, values in filters.items():
        if name == "tag-key":
            if not any(value in tags for value in values):
                return False
        elif name.startswith("tag:"):
            if tags.get(name.removeprefix("tag:")) not in values:
                return False
        elif name not in fields:
            raise EC2ClientError("InvalidParameterValue", f"The filter '{name}' is invalid")
        elif fields[name] not in values:
            return False
    return True


def reservation(body):
    """A reservation as EC2 describes it, from `id`, `instance_type`, `zone`, `count` and what else differs."""
    ends = body.get("ends_in_seconds")
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=ends or 0)
    made = {
        "CapacityReservationId": body["id"],
        "OwnerId": body.get("owner") or DEFAULT_ACCOUNT_ID,
        "InstanceType": body["instance_type"],
        "AvailabilityZone": body["zone"],
        "TotalInstanceCount": body["count"],
        "AvailableInstanceCount": body["count"],
        "InstanceMatchCriteria": body.get("match") or "targeted",
        "ReservationType": body.get("type") or "default",
        "State": "active",
        "Tags": [{"Key": key, "Value": value} for key, value in (body.get("tags") or {}).items()],
    }
    if ends is not None:
        made["EndDate"], made["EndDateType"] = end.strftime("%Y-%m-%dT%H:%M:%SZ"), "limited"
    return made


def placement_group(body):
    made = {"GroupId": body["id"], "GroupName": body["name"], "State": "available", "Strategy": body["strategy"]}
    if body.get("partitions"):
        made["PartitionCount"] = body["partitions"]
    return made


def take(cloud, reservation_id, wanted):
    """Takes up to `wanted` instances of a reservation; `None` for one that does not exist."""
    with cloud.changed:
        for each in cloud.reservations:
            if each["CapacityReservationId"] == reservation_id:
                taken = min(wanted, each["AvailableInstanceCount"])
                each["AvailableInstanceCount"] -= taken
                return taken
    return None


def take_open(cloud, instance_type, zone, wanted):
    """Open reservations fill up with any launch of their type and zone that does not refuse them. Returns the id of one that did."""
    with cloud.changed:
        for each in cloud.reservations:
            is_open = each["InstanceMatchCriteria"] == "open" and each["ReservationType"] == "default"
            if is_open and (each["InstanceType"], each["AvailabilityZone"]) == (instance_type, zone):
                if each["AvailableInstanceCount"] >= wanted:
                    each["AvailableInstanceCount"] -= wanted
                    return each["CapacityReservationId"]
    return None


def give_back(cloud, reservation_id):
    with cloud.changed:
        for each in cloud.reservations:
            if each["CapacityReservationId"] == reservation_id:
                each["AvailableInstanceCount"] = min(each["AvailableInstanceCount"] + 1, each["TotalInstanceCount"])
