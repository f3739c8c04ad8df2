#!/usr/bin/env python3
"""Writes shapes.json.gz: how the AWS calls that the provider makes are written on the wire.

Usage: shapes.py (with `botocore` installed, whose service models are the source). The result names only the operations below
and the shapes that they reach: for a member its name in the API, its name in a request and its name in a response.
"""
import glob
import gzip
import json
import os

import botocore

OPERATIONS = {
    "ec2": [
        "CreateFleet", "CreateLaunchTemplate", "CreateTags", "DeleteLaunchTemplate", "DescribeAvailabilityZones",
        "DescribeCapacityReservations", "DescribeImages", "DescribeInstanceStatus", "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes", "DescribeInstances", "DescribeLaunchTemplates", "DescribePlacementGroups",
        "DescribeSecurityGroups", "DescribeSpotPriceHistory", "DescribeSubnets", "RunInstances", "TerminateInstances",
    ],
    "iam": [
        "AddRoleToInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile", "GetInstanceProfile", "GetRole",
        "ListInstanceProfiles", "RemoveRoleFromInstanceProfile", "TagInstanceProfile",
    ],
    "sqs": ["DeleteMessage", "DeleteMessageBatch", "GetQueueAttributes", "GetQueueUrl", "ReceiveMessage"],
    "ssm": ["GetParameter"],
    "eks": ["DescribeCluster"],
    "pricing": ["GetProducts"],
    "arc-zonal-shift": ["GetManagedResource"],
}


def capital(text):
    return text[:1].upper() + text[1:]


def main():
    data = os.path.join(os.path.dirname(botocore.__file__), "data")
    services = {}
    for service, names in OPERATIONS.items():
        newest = sorted(glob.glob(os.path.join(data, service, "*")))[-1]
        path = glob.glob(os.path.join(newest, "service-2.json*"))[0]
        with (gzip.open if path.endswith("gz") else open)(path, "rt") as file:
            model = json.load(file)
        protocol = model["metadata"]["protocol"]
        shapes = {}

        def request_name(name, member):
            if protocol != "ec2":
                return member.get("locationName", name)
            return member.get("queryName") or capital(member.get("locationName", name))

        def visit(name):
            if name in shapes:
                return
            shape = model["shapes"][name]
            kind = shape["type"]
            if kind == "structure":
                shapes[name] = {"members": {}}
                for member, target in shape["members"].items():
                    row = [target["shape"], request_name(member, target), target.get("locationName", member)]
                    if target.get("location"):
                        row.append(target["location"])
                    shapes[name]["members"][member] = row
                    visit(target["shape"])
            elif kind == "list":
                member = shape["member"]
                shapes[name] = {"list": member["shape"], "item": member.get("locationName", "member")}
                if shape.get("flattened"):
                    shapes[name]["flat"] = True
                visit(member["shape"])
            elif kind == "map":
                shapes[name] = {"map": shape["value"]["shape"]}
                visit(shape["value"]["shape"])
            else:
                shapes[name] = {"scalar": kind}

        operations = {}
        for name in names:
            operation = model["operations"][name]
            row = {"in": operation["input"]["shape"], "uri": operation["http"]["requestUri"]}
            visit(row["in"])
            if "output" in operation:
                row["out"] = operation["output"]["shape"]
                visit(row["out"])
                if operation["output"].get("resultWrapper"):
                    row["wrapper"] = operation["output"]["resultWrapper"]
            operations[name] = row
        services[service] = {"protocol": protocol, "operations": operations, "shapes": shapes}
    text = json.dumps(services, sort_keys=True, separators=(",", ":"))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "shapes.json.gz"), "wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
            packed.write(text.encode())


if __name__ == "__main__":
    main()
