"""What a cluster's owner has in the account before a node autoscaler comes: network, images, role, queue and rules."""

import datetime
import json

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ssm.models import Parameter, ssm_backends

from cloud import OWNER

# Events that a node autoscaler wants to hear of: rule name suffix -> event pattern.
RULES = {
    "spot-interruption": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "state-change": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]},
    "reservation": {"source": ["aws.ec2"], "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"]},
    "health": {"source": ["aws.health"], "detail-type": ["AWS Health Event"]},
}
_EKS, _BOTTLEROCKET, _WINDOWS = "/aws/service/eks/optimized-ami", "/aws/service/bottlerocket", "/aws/service/ami-windows-latest"
# Images of Amazon: key -> architecture, root device, name, public parameters that name it. `{v}` is the minor version of Kubernetes.
# `next` is newer than what the parameters name, and is had by its id only.
IMAGES = {
    **{
        key: (
            kind,
            "/dev/xvda",
            f"amazon-eks-node-al2023-{kind}-{variant}-{{v}}-v20260101",
            [f"{_EKS}/{{v}}/amazon-linux-2023/{kind}/{variant}/{last}/image_id" for last in ("recommended", "{name}")],
        )
        for key, kind, variant in (("amd64", "x86_64", "standard"), ("arm64", "arm64", "standard"), ("nvidia", "x86_64", "nvidia"))
    },
    "next": ("x86_64", "/dev/xvda", "amazon-eks-node-al2023-x86_64-standard-{v}-v20260201", []),
    "bottlerocket": (
        "x86_64", "/dev/xvda", "bottlerocket-aws-k8s-{v}-x86_64-v1.50.0", [f"{_BOTTLEROCKET}/aws-k8s-{{v}}/x86_64/latest/image_id"],
    ),
    "windows2022": (
        "x86_64",
        "/dev/sda1",
        "Windows_Server-2022-English-Core-EKS_Optimized-{v}-2026.01.01",
        [f"{_WINDOWS}/Windows_Server-2022-English-Core-EKS_Optimized-{{v}}/image_id"],
    ),
}


def clients(endpoint, region):
    def client(service):
        return boto3.client(
            service, endpoint_url=endpoint, region_name=region, aws_access_key_id=OWNER, aws_secret_access_key="test"
        )

    return client


def tags(cluster, name, **more):
    named = {"karpenter.sh/discovery": cluster, "Name": name, **more}
    return [{"Key": key, "Value": value} for key, value in named.items()]


def create(endpoint, region, cluster, kubernetes_version, zones):
    client = clients(endpoint, region)
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.10.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=tags(cluster, f"{cluster}-vpc"))
    subnets = {}
    for number, letter in enumerate("abcdef"[:zones]):
        zone = f"{region}{letter}"
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.10.{number * 32}.0/19", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        ec2.create_tags(Resources=[subnet], Tags=tags(cluster, f"{cluster}-private-{zone}"))
        subnets[zone] = subnet
    # A second one in the last zone, smaller, which the discovery tag does not select.
    second = ec2.create_subnet(VpcId=vpc, CidrBlock="10.10.224.0/20", AvailabilityZone=zone)["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName=f"{cluster}-node", Description="nodes", VpcId=vpc)["GroupId"]
    ec2.create_tags(Resources=[group], Tags=tags(cluster, f"{cluster}-node"))

    # A second group of the same network, which the discovery tag does not select.
    spare = ec2.create_security_group(GroupName=f"{cluster}-spare", Description="spare", VpcId=vpc)["GroupId"]

    images = {key: image(ec2, region, cluster, kubernetes_version, *which) for key, which in IMAGES.items()}

    iam = client("iam")
    role = f"KarpenterNodeRole-{cluster}"
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(trust))

    control_plane = client("eks").create_cluster(
        name=cluster,
        version=kubernetes_version,
        roleArn=f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/{role}",
        resourcesVpcConfig={"subnetIds": list(subnets.values()), "securityGroupIds": [group]},
    )["cluster"]

    sqs, events = client("sqs"), client("events")
    queue = sqs.create_queue(QueueName=cluster, Attributes={"MessageRetentionPeriod": "300"})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    for suffix, pattern in RULES.items():
        rule = f"{cluster}-{suffix}"
        events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
        events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": arn}])
    return {
        "cluster": cluster,
        "cluster_endpoint": control_plane["endpoint"],
        "region": region,
        "vpc": vpc,
        "subnets": subnets,
        "security_group": group,
        "spare_security_group": spare,
        "spare_subnet": second,
        "images": images,
        "role": role,
        "queue_name": cluster,
        "queue_url": queue,
    }


def image(ec2, region, cluster, kubernetes_version, architecture, root, name, parameters):
    """Registers an image and publishes it."""
    name = name.format(v=kubernetes_version)
    id_ = ec2.register_image(
        Name=name,
        Architecture=architecture,
        RootDeviceName=root,
        VirtualizationType="hvm",
        BlockDeviceMappings=[{"DeviceName": root, "Ebs": {"VolumeSize": 20, "VolumeType": "gp3"}}],
    )["ImageId"]
    ec2.create_tags(Resources=[id_], Tags=tags(cluster, name))
    for path in parameters:
        publish(region, path.format(v=kubernetes_version, name=name), id_)
    return id_


def publish(region, path, value):
    """Puts a public parameter where the API refuses to let an account write."""
    now = datetime.datetime.now(datetime.timezone.utc)
    parameter = Parameter(
        account_id=DEFAULT_ACCOUNT_ID,
        name=path,
        value=value,
        parameter_type="String",
        description="",
        allowed_pattern=None,
        keyid=None,
        last_modified_date=now,
        version=1,
        data_type="text",
    )
    ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters[path].append(parameter)
