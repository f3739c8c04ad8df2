"""Changes to moto that make it answer as AWS does where the difference matters, and that let tests interfere."""

import threading

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, BaseResponse
from moto.ec2 import utils
from moto.ec2.exceptions import DryRunClientError, EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances
from moto.iam.models import iam_backends
from moto.iam.responses import IamResponse

import fleet
import reservations
from cloud import OWNER, SPOT

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
        fault = cloud.begin(self.service_name, f"{action}:DryRun" if is_dry_run(self) else action)
        if fault and fault["when"] == "before":
            if fault["hold"]:
                cloud.hold(fault)
            if fault["code"]:
                return failure(self, fault)
        refusal = refused(cloud, self, action)
        if refusal:
            return failure(self, refusal)
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
    install_pages()


# Parameters that decide what a policy says of a call.
_JUDGED = (
    "InstanceIds", "InstanceProfileName", "LaunchTemplate", "LaunchTemplateConfigs", "LaunchTemplateId", "LaunchTemplateName", "Name",
    "Path", "QueueName", "QueueUrl", "Resources", "RoleName", "TagSpecifications", "Tags", "name",
)


def refused(cloud, response, action):
    """The failure of a call that comes too early, or that the policy does not allow. The account's owner may do everything."""
    if f"Credential={OWNER}/" in response.headers.get("Authorization", ""):
        return None
    service = response.service_name
    if service == "ec2" and cloud.throttled(action):
        return {"code": "RequestLimitExceeded", "message": "Request limit exceeded.", "status": 503}
    params = {name: response._get_param(name) for name in _JUDGED}
    with _ec2:
        reason = cloud.refusal(service, action, params, Existing(response))
    if reason is None:
        return None
    code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
    return {"code": code, "message": f"You are not authorized to perform this operation. {reason}", "status": 403}


class Existing:
    """What the account of a call has. What it does not have has no tags, no path and no roles."""

    def __init__(self, response):
        self.response = response

    @property
    def profiles(self):
        return iam_backends[self.response.current_account][self.response.partition].instance_profiles.values()

    def profile(self, name):
        return next((each for each in self.profiles if each.name == name), None)

    def path_of_profile(self, name):
        found = self.profile(name)
        return found.path if found else "/"

    def roles_of_profile(self, reference):
        found = self.profile(fleet.profile_name(reference))
        return [role.name for role in found.roles] if found else []

    def tags(self, id_):
        if self.response.service_name == "iam":
            found = self.profile(id_)
            return {tag["Key"]: tag["Value"] for tag in found.tags} if found else {}
        backend = self.response.ec2_backend
        id_ = backend.launch_template_name_to_ids.get(id_, id_)
        return {tag["key"]: tag["value"] for tag in backend.describe_tags(filters={"resource-id": [id_]})}

    def template(self, id_):
        """The data of a launch template; of one that does not exist, none."""
        backend = self.response.ec2_backend
        found = backend.launch_templates.get(backend.launch_template_name_to_ids.get(id_, id_))
        if found is None:
            return {}
        data = found.default_version().data
        # moto keeps the tags of the template itself among those of what it launches.
        specs = [spec for spec in data.get("TagSpecifications") or [] if spec.get("ResourceType") != "launch-template"]
        return {**data, "TagSpecifications": specs}


def failure(response, fault):
    # moto finds the service that an error belongs to by the module of its class.
    module = f"moto.{response.service_name}.exceptions"
    error = type("SetByTest", (ServiceException,), {"__module__": module})(fault["code"], fault["message"])
    status, headers, body = response.serialized(ActionResult(error))
    if fault["status"]:
        status = fault["status"]
    headers["status"] = str(status)
    return status, headers, body


def is_dry_run(response):
    return str(response._get_param("DryRun", False)).lower() == "true"


def dry_run(cloud, response):
    """moto forgets DryRun in some reads; EC2 never does. A dry run of RunInstances looks at what it would launch with."""
    if not is_dry_run(response):
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


def install_pages():
    """moto answers with all types at once; EC2 gives a hundred."""
    original = InstanceResponse.describe_instance_types

    def describe_instance_types(self):
        found = original(self)
        types = found.result["InstanceTypes"]
        start = int(self._get_param("NextToken") or 0)
        end = start + min(int(self._get_param("MaxResults") or 100), 100)
        more = {"NextToken": str(end)} if end < len(types) else {}
        return ActionResult({"InstanceTypes": types[start:end], **more})

    InstanceResponse.describe_instance_types = describe_instance_types


def set_state(instance, state):
    instance._state.name, instance._state.code = state


def install_endings(cloud):
    """moto's instances are terminated in the moment of the call; with `linger` they take their time."""
    original = Instance.terminate

    def terminate(self, *args, **kwargs):
        previous = original(self, *args, **kwargs)
        if getattr(self, "capacity_reservation_id", None) and previous.name not in ("shutting-down", "terminated"):
            reservations.give_back(cloud, self.capacity_reservation_id)
        if cloud.linger:
            set_state(self, SHUTTING_DOWN)
        return previous

    Instance.terminate = terminate
