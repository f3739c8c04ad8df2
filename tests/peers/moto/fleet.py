"""CreateFleet of type `instant` as EC2 answers it, in place of moto's, which takes the first override whatever it costs."""

import json
import threading

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.responses.fleets import Fleets
from moto.ec2.utils import convert_tag_spec, random_fleet_id
from moto.iam.models import iam_backends

import reservations
from cloud import ON_DEMAND, SPOT

# One CreateFleet with a client token at a time: a repetition must find what the first one did.
_fleets = threading.Lock()


class Refused(Exception):
    """One override cannot be launched: an entry of the reply's Errors, not a failed call."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def install(cloud):
    def create_fleet(self):
        request = {
            name: self._get_param(name)
            for name in (
                "LaunchTemplateConfigs",
                "TargetCapacitySpecification",
                "OnDemandOptions",
                "SpotOptions",
                "TagSpecifications",
                "Type",
                "Context",
            )
        }
        self.error_on_dryrun()
        with _fleets:
            return ActionResult(answer(cloud, self.ec2_backend, request, self._get_param("ClientToken")))

    Fleets.create_fleet = create_fleet


def answer(cloud, backend, request, token):
    if request["Type"] != "instant":
        raise EC2ClientError("InvalidParameterValue", f"this emulator creates fleets of type instant, not {request['Type']}")
    fingerprint = json.dumps(request, sort_keys=True, default=str)
    if token in cloud.fleet_tokens:
        before, result = cloud.fleet_tokens[token]
        if before != fingerprint:
            raise EC2ClientError("IdempotentParameterMismatch", f"the client token {token} was used with other parameters")
        return result
    result = launch(cloud, backend, request)
    if token:
        cloud.fleet_tokens[token] = (fingerprint, result)
    return result


def launch(cloud, backend, request):
    target = request["TargetCapacitySpecification"] or {}
    capacity_type = target.get("DefaultTargetCapacityType") or ON_DEMAND
    wanted = int(target["TotalTargetCapacity"])
    options = request["SpotOptions" if capacity_type == SPOT else "OnDemandOptions"] or {}
    strategy = options.get("AllocationStrategy") or "lowest-price"

    candidates = [
        candidate(cloud, backend, config, template, override, capacity_type)
        for config in request["LaunchTemplateConfigs"] or []
        for template in [launch_template(backend, config["LaunchTemplateSpecification"])]
        for override in config.get("Overrides") or [{}]
    ]
    if not candidates:
        raise EC2ClientError("InvalidParameter", "a fleet needs at least one launch template configuration")
    by_price = lambda c: (c["price"], c["type"], c["zone"])  # noqa: E731
    if "prioritized" in strategy:
        candidates.sort(key=lambda c: (float(c["override"].get("Priority") or "inf"), *by_price(c)))
    else:
        candidates.sort(key=by_price)

    fleet_id = random_fleet_id()
    tags = {
        **convert_tag_spec(request["TagSpecifications"] or []).get("instance", {}),
        "aws:ec2:fleet-id": fleet_id,
    }
    errors, instances = [], []
    for choice in candidates:
        if wanted == 0:
            break
        echo = {"LaunchTemplateSpecification": choice["template"], "Overrides": choice["override"]}
        try:
            got = run(cloud, backend, choice, wanted, capacity_type, tags)
            wanted -= len(got)
            instances.append(
                {
                    "LaunchTemplateAndOverrides": echo,
                    "Lifecycle": capacity_type,
                    "InstanceIds": [instance.id for instance in got],
                    "InstanceType": choice["type"],
                }
            )
        except Refused as refused:
            errors.append(
                {
                    "LaunchTemplateAndOverrides": echo,
                    "Lifecycle": capacity_type,
                    "ErrorCode": refused.code,
                    "ErrorMessage": refused.message,
                }
            )
    return {"FleetId": fleet_id, "Errors": errors, "Instances": instances}


def launch_template(backend, spec):
    if spec.get("LaunchTemplateId"):
        template = backend.get_launch_template(template_id=spec["LaunchTemplateId"])
    else:
        template = backend.get_launch_template_by_name(name=spec["LaunchTemplateName"])
    version = template.get_version(spec.get("Version") or "$Default")
    echo = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": str(version.number)}
    return echo, version.data


def candidate(cloud, backend, config, template, override, capacity_type):
    echo, data = template
    merged = {**data, **override}
    instance_type, zone = merged.get("InstanceType"), merged.get("AvailabilityZone") or ""
    problem = None
    subnet_id = merged.get("SubnetId")
    if subnet_id:
        try:
            subnet = backend.get_subnet(subnet_id)
            if zone and zone != subnet.availability_zone:
                problem = Refused("InvalidParameter", f"the subnet {subnet_id} is not in {zone}")
            zone = subnet.availability_zone
        except EC2ClientError as error:
            problem = Refused(error.code, error.message)
    if instance_type not in INSTANCE_TYPES:
        problem = Refused("InvalidInstanceType", f"The following supplied instance types do not exist: [{instance_type}]")
    elif problem is None and not offered(backend.region_name, instance_type, zone):
        problem = Refused(
            "InvalidFleetConfiguration",
            f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone}).",
        )
    price = float("inf") if problem else cloud.price(instance_type, zone, capacity_type)
    return {
        "template": echo,
        "data": merged,
        "override": override,
        "type": instance_type or "",
        "zone": zone,
        "subnet": subnet_id,
        "price": price,
        "problem": problem,
    }


_offerings = {}


def offered(region, instance_type, zone):
    if region not in _offerings:
        listed = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
        _offerings[region] = {(offering["InstanceType"], offering["Location"]) for offering in listed}
    return (instance_type, zone) in _offerings[region]


def run(cloud, backend, choice, wanted, capacity_type, fleet_tags):
    if choice["problem"]:
        raise choice["problem"]
    data, zone = choice["data"], choice["zone"]
    ceiling = data.get("MaxPrice")
    if capacity_type == SPOT and ceiling and float(ceiling) < choice["price"]:
        raise Refused("SpotMaxPriceTooLow", f"Your Spot request price of {ceiling} is lower than the minimum required {choice['price']}")
    profile = usable_profile(cloud, backend, data)
    if choice["subnet"] in cloud.full_subnets:
        raise Refused("InsufficientFreeAddressesInSubnet", f"There are not enough free addresses in subnet '{choice['subnet']}'.")
    held = reserved(cloud, choice, data, zone, wanted)
    with cloud.changed:
        pool = None if held else cloud.pool(choice["type"], zone, capacity_type)
        count = wanted if pool is None else min(wanted, pool.remaining)
        if count == 0:
            raise Refused(pool.code, pool.describe(choice["type"], zone))
        if pool is not None:
            pool.remaining -= count

    interfaces = data.get("NetworkInterfaces") or []
    groups = data.get("SecurityGroupIds") or [group for interface in interfaces for group in interface.get("Groups") or []]
    tags = convert_tag_spec(data.get("TagSpecifications") or [])
    echo = choice["template"]
    tags["instance"] = {
        **tags.get("instance", {}),
        **fleet_tags,
        "aws:ec2launchtemplate:id": echo["LaunchTemplateId"],
        "aws:ec2launchtemplate:version": echo["Version"],
    }
    settings = {
        "instance_type": choice["type"],
        "is_instance_type_default": False,
        "region_name": backend.region_name,
        "subnet_id": choice["subnet"],
        "placement": None if choice["subnet"] else zone,
        "key_name": data.get("KeyName"),
        "security_group_ids": list(groups),
        "tags": tags,
        "ebs_optimized": data.get("EbsOptimized") or False,
        "monitoring_state": "enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        "metadata_options": data.get("MetadataOptions") or {},
        "lifecycle": SPOT if capacity_type == SPOT else None,
    }
    devices = [device for device in data.get("BlockDeviceMappings") or [] if device.get("Ebs")]
    if devices:
        settings["block_device_mappings"] = devices
    if held:
        count, reservation_id, preference = held
    made = backend.run_instances(data["ImageId"], count, data.get("UserData"), [], **settings)
    for instance in made.instances:
        if held:
            instance.capacity_reservation_id = reservation_id
            instance.capacity_reservation_specification = {"CapacityReservationPreference": preference}
        if capacity_type == SPOT:
            instance.spot_instance_request_id = instance.id.replace("i-", "sir-", 1)[:12]
        if profile:
            backend.associate_iam_instance_profile(instance.id, iam_instance_profile_name=profile)
    return made.instances


def reserved(cloud, choice, data, zone, wanted):
    """How many instances a reservation takes, its id and the preference; `None` when none is used."""
    spec = data.get("CapacityReservationSpecification") or {}
    preference = spec.get("CapacityReservationPreference") or "open"
    target = (spec.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
    if target:
        taken = reservations.take(cloud, target, wanted)
        if not taken:
            raise Refused("ReservationCapacityExceeded", f"The reservation {target} has no capacity that is left.")
        return taken, target, preference
    if preference == "open":
        id_ = reservations.take_open(cloud, choice["type"], zone, wanted)
        return (wanted, id_, preference) if id_ else None
    return None


def usable_profile(cloud, backend, data):
    """Name of the instance profile that a launch names, if it names one; EC2 must know it, and it must have a role."""
    profile = profile_name(data.get("IamInstanceProfile") or {})
    if not profile:
        return None
    iam = iam_backends[backend.account_id][backend.partition]
    known = next((known for known in iam.instance_profiles.values() if known.name == profile), None)
    if known is None or (utcnow() - known.create_date).total_seconds() < cloud.profile_delay:
        raise Refused(
            "InvalidParameterValue", f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
        )
    if not known.roles:
        raise Refused("InvalidParameterValue", f"IAM Instance Profile {known.arn} has no associated IAM Roles")
    return profile


def profile_name(profile):
    return profile.get("Name") or (profile.get("Arn") or "").rpartition("/")[2]
