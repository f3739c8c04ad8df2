"""IAM's evaluation of identity policies, as far as a controller's policy uses it: explicit allow, everything else is denied.

A call is checked once for each kind of resource that it touches, as IAM does: for RunInstances and CreateFleet the image, the
subnets, the groups, the template and whatever is created; for calls that take ids those ids with their tags.
"""

import fnmatch

from moto.core import DEFAULT_ACCOUNT_ID

# What a call creates: kind of resource in the ARN.
CREATED = {
    "CreateFleet": ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"],
    "RunInstances": ["instance", "volume", "network-interface", "spot-instances-request"],
    "CreateLaunchTemplate": ["launch-template"],
}


class Policy:
    """Statements of all documents. Without any, everything is allowed."""

    def __init__(self, documents, region):
        self.statements = [statement for document in documents for statement in document["Statement"]]
        self.region = region

    def denial(self, service, action, params, tags_of):
        """Why the call is denied; `None` if it is allowed. `tags_of` gives the tags of an existing resource by its id."""
        if not self.statements:
            return None
        name = f"{service}:{action}"
        for resource, context in self.checks(service, action, params, tags_of):
            if not any(self.allows(statement, name, resource, context) for statement in self.statements):
                return f"{name} on {resource} is not allowed by any statement (context {context})"
        return None

    def arn(self, service, kind, id_):
        region = "" if service == "iam" else self.region
        account = "" if kind in ("image", "snapshot") else DEFAULT_ACCOUNT_ID
        return f"arn:aws:{service}:{region}:{account}:{kind}/{id_}"

    def checks(self, service, action, params, tags_of):
        """Resources of a call, each with its condition keys."""
        base = {"aws:RequestedRegion": [self.region]}
        if service == "ec2":
            yield from self.ec2(action, params, tags_of, base)
        elif service == "iam":
            path = params.get("Path") or "/"
            tags = request_tags(params.get("Tags"))
            id_ = params.get("InstanceProfileName") or "*"
            own = tags_of(id_) if action != "CreateInstanceProfile" else {}
            context = {**base, **tag_context("aws:RequestTag", tags), **tag_context("aws:ResourceTag", own), "aws:TagKeys": list(tags)}
            yield self.arn("iam", "instance-profile", f"{path.strip('/')}/{id_}".lstrip("/")), context
        elif service == "sqs":
            queue = params.get("QueueName") or (params.get("QueueUrl") or "*").rsplit("/", 1)[-1]
            yield f"arn:aws:sqs:{self.region}:{DEFAULT_ACCOUNT_ID}:{queue}", base
        elif service == "ssm":
            name = "/" + (params.get("Name") or "*").lstrip("/")
            account = "" if name.startswith("/aws/service/") else DEFAULT_ACCOUNT_ID
            yield f"arn:aws:ssm:{self.region}:{account}:parameter{name}", base
        elif service == "eks":
            yield self.arn("eks", "cluster", params.get("name") or "*"), base
        else:
            yield "*", base

    def ec2(self, action, params, tags_of, base):
        if action in CREATED:
            by_kind = {}
            for spec in params.get("TagSpecifications") or []:
                by_kind[spec.get("ResourceType")] = request_tags(spec.get("Tags"))
            for kind in CREATED[action]:
                if kind not in by_kind:
                    continue  # what is not created, or is tagged by its template
                tags = by_kind[kind]
                yield self.arn("ec2", kind, "*"), {
                    **base, **tag_context("aws:RequestTag", tags), "aws:TagKeys": list(tags),
                }
                # Tags at creation need CreateTags, too.
                yield from self.tagging(kind, action, tags, base)
            for kind in ("image", "subnet", "security-group") if action != "CreateLaunchTemplate" else ():
                yield self.arn("ec2", kind, "*"), base
            for template in templates(params):
                yield self.arn("ec2", "launch-template", template), {**base, **tag_context("aws:ResourceTag", tags_of(template))}
        elif action == "CreateTags":
            tags = request_tags(params.get("Tags"))
            for id_ in params.get("Resources") or []:
                context = {**base, **tag_context("aws:RequestTag", tags), **tag_context("aws:ResourceTag", tags_of(id_)), "aws:TagKeys": list(tags)}
                yield self.arn("ec2", "instance" if id_.startswith("i-") else "volume", id_), context
        elif action in ("TerminateInstances", "DeleteLaunchTemplate"):
            ids = params.get("InstanceIds") or [params.get("LaunchTemplateId") or params.get("LaunchTemplateName")]
            kind = "instance" if action == "TerminateInstances" else "launch-template"
            for id_ in ids:
                yield self.arn("ec2", kind, id_), {**base, **tag_context("aws:ResourceTag", tags_of(id_))}
        else:
            yield "*", base

    def tagging(self, kind, action, tags, base):
        context = {**base, **tag_context("aws:RequestTag", tags), "aws:TagKeys": list(tags), "ec2:CreateAction": [action]}
        statements = [s for s in self.statements if self.allows(s, "ec2:CreateTags", self.arn("ec2", kind, "*"), context)]
        if not statements:
            yield f"CreateTags at creation of {kind}: {self.arn('ec2', kind, '*')}", context

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
    for config in params.get("LaunchTemplateConfigs") or []:
        spec = config.get("LaunchTemplateSpecification") or {}
        yield spec.get("LaunchTemplateName") or spec.get("LaunchTemplateId") or "*"
