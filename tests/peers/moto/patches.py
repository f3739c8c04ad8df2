"""Changes to moto that make it answer as AWS does where the difference matters, and that let tests interfere."""

import threading

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, BaseResponse
from moto.ec2 import utils
from moto.ec2.exceptions import DryRunClientError, EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.responses.spot_instances import SpotInstances
from moto.iam.responses import IamResponse

import fleet
from cloud import SPOT

# moto's EC2 is not safe for threads, and the server has one per connection.
_ec2 = threading.RLock()
_READS = ("Describe", "Get", "List", "Receive")
_PAGE = 1000
_PROFILES = 100
SHUTTING_DOWN, TERMINATED = ("shutting-down", 32), ("terminated", 48)


def install(cloud):
    original = BaseResponse.call_action

    def call_action(self):
        action = self._get_action()
        fault = cloud.begin(self.service_name, action)
        if fault and fault["when"] == "before":
            if fault["hold"]:
                cloud.hold(fault)
            if fault["code"]:
                return failure(self, fault)
        if self.service_name == "ec2":
            with _ec2:
                reply = dry_run(cloud, self) or original(self)
        else:
            reply = original(self)
        if not action.startswith(_READS):
            cloud.bump()
        if fault and fault["when"] == "after":
            if fault["hold"]:
                cloud.hold(fault)
            if fault["code"]:
                return failure(self, fault)
        return reply

    BaseResponse.call_action = call_action
    install_prices(cloud)
    install_profiles()
    install_images()
    install_endings(cloud)


def failure(response, fault):
    # moto finds the service that an error belongs to by the module of its class.
    module = f"moto.{response.service_name}.exceptions"
    error = type("SetByTest", (ServiceException,), {"__module__": module})(fault["code"], fault["message"])
    status, headers, body = response.serialized(ActionResult(error))
    if fault["status"]:
        status = fault["status"]
    headers["status"] = str(status)
    return status, headers, body


def dry_run(cloud, response):
    """moto forgets DryRun in some reads; EC2 never does. A dry run of RunInstances looks at what it would launch with."""
    if str(response._get_param("DryRun", False)).lower() != "true":
        return None
    error, code = DryRunClientError(), 412
    template = response._get_param("LaunchTemplate")
    if response._get_action() == "RunInstances" and template:
        try:
            fleet.usable_profile(cloud, response.ec2_backend, fleet.launch_template(response.ec2_backend, template)[1])
        except fleet.Refused as refused:
            error, code = EC2ClientError(refused.code, str(refused)), 400
    status, headers, body = response.serialized(ActionResult(error))
    headers["status"] = str(code)
    return code, headers, body


def install_profiles():
    """moto lists the profiles of every path in one page, and cannot look for the instances of one."""

    def list_instance_profiles(self):
        prefix = self._get_param("PathPrefix") or "/"
        found = [profile for profile in self.backend.get_instance_profiles() if profile.path.startswith(prefix)]
        start = int(self._get_param("Marker") or 0)
        end = start + int(self._get_param("MaxItems") or _PROFILES)
        more = end < len(found)
        page = {"InstanceProfiles": found[start:end], "IsTruncated": more}
        return ActionResult({**page, "Marker": str(end)} if more else page)

    IamResponse.list_instance_profiles = list_instance_profiles
    original = utils.passes_filter_dict

    def passes_filter_dict(instance, filters):
        others = {name: values for name, values in filters.items() if name != "iam-instance-profile.arn"}
        if len(others) < len(filters):
            association = instance.ec2_backend.iam_instance_profile_associations.get(instance.id)
            if not association or association.iam_instance_profile.arn not in filters["iam-instance-profile.arn"]:
                return False
        return original(instance, others)

    utils.passes_filter_dict = passes_filter_dict


def install_prices(cloud):
    def describe_spot_price_history(self):
        types = set(self._get_param("InstanceTypes", []))
        products = self._get_param("ProductDescriptions", []) or ["Linux/UNIX"]
        filters = self._filters_from_querystring()
        zones = set(filters.get("availability-zone", []))
        if self._get_param("AvailabilityZone"):
            zones.add(self._get_param("AvailabilityZone"))
        types |= set(filters.get("instance-type", []))
        region = self.ec2_backend.region_name
        rows = [
            {
                "InstanceType": offering["InstanceType"],
                "AvailabilityZone": offering["Location"],
                "ProductDescription": product,
                "SpotPrice": f"{cloud.price(offering['InstanceType'], offering['Location'], SPOT):.6f}",
                "Timestamp": "2026-01-01T00:00:00Z",
            }
            for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
            if (not types or offering["InstanceType"] in types) and (not zones or offering["Location"] in zones)
            for product in products
        ]
        start = int(self._get_param("NextToken") or 0)
        end = start + min(int(self._get_param("MaxResults") or _PAGE), _PAGE)
        return ActionResult({"SpotPriceHistory": rows[start:end], "NextToken": str(end) if end < len(rows) else ""})

    SpotInstances.describe_spot_price_history = describe_spot_price_history


def install_images():
    """moto forgets everything but the name of a registered image."""
    original = AmisResponse.register_image

    def register_image(self):
        result = original(self)
        image = self.ec2_backend.amis[result.result["ImageId"]]
        image.architecture = self._get_param("Architecture") or "x86_64"
        image.virtualization_type = self._get_param("VirtualizationType") or "paravirtual"
        image.root_device_name = self._get_param("RootDeviceName") or "/dev/sda1"
        image.root_device_type = "ebs"
        image.state = "available"
        return result

    AmisResponse.register_image = register_image


def set_state(instance, state):
    instance._state.name, instance._state.code = state


def install_endings(cloud):
    """moto's instances are terminated in the moment of the call; with `linger` they take their time."""
    original = Instance.terminate

    def terminate(self, *args, **kwargs):
        previous = original(self, *args, **kwargs)
        if cloud.linger:
            set_state(self, SHUTTING_DOWN)
        return previous

    Instance.terminate = terminate
