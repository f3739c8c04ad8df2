"""IAM's evaluation of identity policies, as far as a controller's policy uses it: explicit allow, everything else is denied.

A call is checked once for each action and resource that it needs, as IAM does: for RunInstances and CreateFleet the image, the
subnets, the groups, the template, whatever is created with its tags, and the role that is passed to the instances; for calls
that take ids those ids with their tags.
"""

import fnmatch

from moto.core import DEFAULT_ACCOUNT_ID

# What a call creates: kind of resource in the ARN.
CREATED = {
    "CreateFleet": ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"],
    "RunInstances": ["instance", "volume", "network-interface", "spot-instances-request"],
    "CreateLaunchTemplate": ["launch-template"],
}
# These are created with and without tags; others only if the request names them.
ALWAYS_CREATED = {
    "CreateFleet": ["fleet", "instance", "volume", "network-interface"],
    "RunInstances": ["instance", "volume", "network-interface"],
    "CreateLaunchTemplate": ["launch-template"],
}
# What a launch refers to: kind of resource, field of the template that names it (none: every launch).
REFERENCES = {
    "image": None,
    "subnet": None,
    "security-group": None,
    "placement-group": ("Placement", "GroupId"),
    "capacity-reservation": ("CapacityReservationSpecification", "CapacityReservationTarget"),
}
# Calls that the permission of another action allows.
ALLOWED_BY = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}


class Policy:
    """Statements of all documents. Without any, everything is allowed."""

    def __init__(self, documents, region):
        self.statements = [statement for document in documents for statement in document["Statement"]]
        self.region = region

    def denial(self, service, action, params, account):
        """Why the call is denied; `None` if it is allowed. `account` knows what exists: see `patches.Existing`."""
        if not self.statements:
            return None
        for name, resource, context in self.checks(service, action, params, account):
            context = {"aws:RequestedRegion": [self.region], **context}
            if not any(self.allows(statement, name, resource, context) for statement in self.statements):
                return f"{name} on {resource} is not allowed by any statement (context {context})"
        return None

    def arn(self, service, kind, id_):
        region = "" if service == "iam" else self.region
        account = "" if kind in ("image", "snapshot") else DEFAULT_ACCOUNT_ID
        return f"arn:aws:{service}:{region}:{account}:{kind}/{id_}"

    def checks(self, service, action, params, account):
        """Actions and resources that a call needs, each with its condition keys."""
        name = ALLOWED_BY.get(f"{service}:{action}", f"{service}:{action}")
        if service == "ec2":
            yield from self.ec2(name, action, params, account)
        elif service == "iam":
            yield from self.iam(name, action, params, account)
        elif service == "sqs":
            queue = params.get("QueueName") or (params.get("QueueUrl") or "*").rsplit("/", 1)[-1]
            yield name, f"arn:aws:sqs:{self.region}:{DEFAULT_ACCOUNT_ID}:{queue}", {}
        elif service == "ssm":
            parameter = "/" + (params.get("Name") or "*").lstrip("/")
            owner = "" if parameter.startswith("/aws/service/") else DEFAULT_ACCOUNT_ID
            yield name, f"arn:aws:ssm:{self.region}:{owner}:parameter{parameter}", {}
        elif service == "eks":
            yield name, self.arn("eks", "cluster", params.get("name") or "*"), {}
        else:
            yield name, "*", {}

    def iam(self, name, action, params, account):
        profile = params.get("InstanceProfileName")
        if profile is None:
            yield name, "*", {}
            return
        is_new = action == "CreateInstanceProfile"
        # The ARN has the path of the profile: of the request for a new one, else where the profile is.
        path = (params.get("Path") if is_new else account.path_of_profile(profile)) or "/"
        arn = self.arn("iam", "instance-profile", f"{path}{profile}".lstrip("/"))
        tags = request_tags(params.get("Tags"))
        own = {} if is_new else account.tags(profile)
        context = {**tag_context("aws:RequestTag", tags), **tag_context("aws:ResourceTag", own), "aws:TagKeys": list(tags)}
        yield name, arn, context
        if is_new and tags:
            yield "iam:TagInstanceProfile", arn, {**context, **tag_context("aws:ResourceTag", tags)}
        if action == "AddRoleToInstanceProfile":
            yield from self.passing([params.get("RoleName") or "*"])

    def passing(self, roles):
        """An instance that gets a role gets it from who launches it."""
        for role in roles:
            yield "iam:PassRole", self.arn("iam", "role", role), {"iam:PassedToService": ["ec2.amazonaws.com"]}

    def ec2(self, name, action, params, account):
        if action in CREATED:
            yield from self.creation(name, action, params, account)
        elif action == "CreateTags":
            tags = request_tags(params.get("Tags"))
            for id_ in params.get("Resources") or []:
                context = {**tag_context("aws:RequestTag", tags), **tag_context("aws:ResourceTag", account.tags(id_)), "aws:TagKeys": list(tags)}
                yield name, self.arn("ec2", "instance" if id_.startswith("i-") else "volume", id_), context
        elif action in ("TerminateInstances", "DeleteLaunchTemplate"):
            ids = params.get("InstanceIds") or [params.get("LaunchTemplateId") or params.get("LaunchTemplateName")]
            kind = "instance" if action == "TerminateInstances" else "launch-template"
            for id_ in ids:
                yield name, self.arn("ec2", kind, id_), tag_context("aws:ResourceTag", account.tags(id_))
        else:
            yield name, "*", {}

    def creation(self, name, action, params, account):
        """A launch or a new template: what is created, with its tags, and what it refers to."""
        used = templates(params)
        contents = [account.template(template) for template in used]
        named = [*(params.get("TagSpecifications") or []), *(spec for data in contents for spec in data.get("TagSpecifications") or [])]
        tags_of_kind = {}
        for spec in named:
            tags_of_kind.setdefault(spec.get("ResourceType"), {}).update(request_tags(spec.get("Tags")))
        for kind in CREATED[action]:
            if kind not in tags_of_kind and kind not in ALWAYS_CREATED[action]:
                continue
            tags = tags_of_kind.get(kind, {})
            context = {**tag_context("aws:RequestTag", tags), "aws:TagKeys": list(tags)}
            yield name, self.arn("ec2", kind, "*"), context
            if tags:
                # Tags at creation need CreateTags, too.
                yield "ec2:CreateTags", self.arn("ec2", kind, "*"), {**context, "ec2:CreateAction": [action]}
        if action == "CreateLaunchTemplate":
            return
        for kind, field in REFERENCES.items():
            if field is None or any((data.get(field[0]) or {}).get(field[1]) for data in contents):
                yield name, self.arn("ec2", kind, "*"), {}
        for template in used:
            yield name, self.arn("ec2", "launch-template", template), tag_context("aws:ResourceTag", account.tags(template))
        for data in contents:
            yield from self.passing(account.roles_of_profile(data.get("IamInstanceProfile") or {}))

    def allows(self, statement, action, resource, context):
        return (
            statement["Effect"] == "Allow"
            and any(fnmatch.fnmatchcase(action.lower(), each.lower()) for each in listed(statement["Action"]))
            and any(covers(each, resource) for each in listed(statement.get("Resource", "*")))
            and all(
                condition(operator, key, listed(wanted), context)
                for operator, keys in statement.get("Condition", {}).items()
                for key, wanted in keys.items()
            )
        )


def covers(pattern, resource):
    """`resource` ends in `*` where the call creates what has no id yet."""
    return resource == "*" and pattern == "*" or fnmatch.fnmatchcase(resource, pattern)


def condition(operator, key, wanted, context):
    values = context.get(key) or next((v for k, v in context.items() if k.lower() == key.lower()), None)
    if operator.startswith("ForAllValues:"):
        return all(condition(operator.split(":", 1)[1], "x", wanted, {"x": [value]}) for value in values or [])
    if operator.startswith("ForAnyValue:"):
        return any(condition(operator.split(":", 1)[1], "x", wanted, {"x": [value]}) for value in values or [])
    if operator.endswith("IfExists"):
        return values is None or condition(operator.removesuffix("IfExists"), key, wanted, context)
    if operator in ("StringEquals", "ArnEquals"):
        return values is not None and any(value in wanted for value in values)
    if operator in ("StringLike", "ArnLike"):
        return values is not None and any(fnmatch.fnmatchcase(value, each) for value in values for each in wanted)
    if operator == "StringNotEquals":
        return values is None or all(value not in wanted for value in values)
    if operator == "Null":
        return (values is None) == (str(wanted[0]).lower() == "true")
    if operator == "Bool":
        return values is not None and [str(value).lower() for value in values] == [str(each).lower() for each in wanted]
    raise ValueError(f"the condition operator {operator} is not known here")


def listed(value):
    return value if isinstance(value, list) else [value]


def request_tags(tags):
    return {tag.get("Key"): tag.get("Value") for tag in tags or []}


def tag_context(prefix, tags):
    return {f"{prefix}/{key}": [value] for key, value in tags.items()}


def templates(params):
    """Names or ids of the templates that a launch uses."""
    specs = [config.get("LaunchTemplateSpecification") or {} for config in params.get("LaunchTemplateConfigs") or []]
    specs.append(params.get("LaunchTemplate") or {})
    return [id_ for spec in specs for id_ in [spec.get("LaunchTemplateName") or spec.get("LaunchTemplateId")] if id_]
