#!/usr/bin/env python3
"""Builds the embedded catalog of mortise-aws from public descriptions of EC2.

    build.py TYPES OFFERINGS LIMITS BANDWIDTH OUTDIR

TYPES      the answer of DescribeInstanceTypes: {"InstanceTypes": [...]}, a list of pages, or a map by name
OFFERINGS  {region: {zone: [type, ...]}}, from DescribeInstanceTypeOfferings by availability zone
LIMITS     {type: {"branchInterface": n, "isTrunkingCompatible": bool, "iPv4PerInterface": n}}, the limits of the
           VPC resource controller
BANDWIDTH  {"mbps": {type: n}}, baseline network bandwidth as EC2's pages publish it
Every input may be gzip-compressed. Output is byte-for-byte reproducible: sorted, no time stamps.
"""
import gzip
import json
import sys


def load(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        return json.load(file)


def by_name(types):
    if isinstance(types, list):
        types = {"InstanceTypes": [item for page in types for item in page["InstanceTypes"]]}
    if isinstance(types.get("InstanceTypes"), list):
        return {item["InstanceType"]: item for item in types["InstanceTypes"]}
    return types


def hardware(info):
    """What one DescribeInstanceTypes item says, without what is absent, false or zero."""
    network, processor = info["NetworkInfo"], info["ProcessorInfo"]
    ebs, disks = info.get("EbsInfo") or {}, info.get("InstanceStorageInfo") or {}
    cards = sorted(network.get("NetworkCards") or [], key=lambda card: card["NetworkCardIndex"])
    assert [card["NetworkCardIndex"] for card in cards] == list(range(len(cards))), info["InstanceType"]
    optimised = ebs.get("EbsOptimizedInfo") or {}
    row = {
        "arch": processor["SupportedArchitectures"],
        "vcpus": info["VCpuInfo"]["DefaultVCpus"],
        "memoryMiB": info["MemoryInfo"]["SizeInMiB"],
        "cpuManufacturer": processor.get("Manufacturer"),
        "clockMHz": round((processor.get("SustainedClockSpeedInGhz") or 0) * 1000),
        "nestedVirtualization": "nested-virtualization" in (processor.get("SupportedFeatures") or []),
        "usage": info["SupportedUsageClasses"],
        "virtualization": info["SupportedVirtualizationTypes"],
        "hypervisor": info.get("Hypervisor"),
        "enclaves": info.get("NitroEnclavesSupport") == "supported",
        "placement": (info.get("PlacementGroupInfo") or {}).get("SupportedStrategies"),
        "ebsMbps": optimised.get("MaximumBandwidthInMbps") if ebs.get("EbsOptimizedSupport") == "default" else None,
        "diskGB": disks.get("TotalSizeInGB"),
        "nvme": bool(disks) and disks.get("NvmeSupport") != "unsupported",
        "ena": network.get("EnaSupport") not in (None, "unsupported"),
        "encryptionInTransit": network.get("EncryptionInTransitSupported"),
        "ipv4PerInterface": network["Ipv4AddressesPerInterface"],
        "interfaces": [card["MaximumNetworkInterfaces"] for card in cards],
        "defaultCard": network.get("DefaultNetworkCardIndex"),
        "efa": (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces"),
        "gpus": [
            {"name": gpu["Name"], "manufacturer": gpu["Manufacturer"], "count": gpu["Count"], "memoryMiB": gpu["MemoryInfo"]["SizeInMiB"]}
            for gpu in (info.get("GpuInfo") or {}).get("Gpus", [])
        ],
        "inference": [
            {"name": item["Name"], "manufacturer": item["Manufacturer"], "count": item["Count"]}
            for item in (info.get("InferenceAcceleratorInfo") or {}).get("Accelerators", [])
        ],
        "neuron": [
            {"name": item["Name"], "count": item["Count"], "cores": item["CoreInfo"]["Count"]}
            for item in (info.get("NeuronInfo") or {}).get("NeuronDevices", [])
        ],
    }
    return {key: value for key, value in row.items() if value}


def main(types, offerings, limits, bandwidth, outdir):
    types, offerings, limits = by_name(load(types)), load(offerings), load(limits)
    mbps, zones = load(bandwidth)["mbps"], {}
    for region in sorted(offerings):
        for zone in sorted(offerings[region]):
            for name in offerings[region][zone]:
                zones.setdefault(name, {}).setdefault(region, []).append(zone)
    known, extra = [], []
    for name in sorted(set(types) | set(limits) | set(mbps)):
        row = {"type": name}
        if name in types:
            row.update(hardware(types[name]))
        limit = limits.get(name, {})
        if limit.get("isTrunkingCompatible") and limit.get("branchInterface"):
            row["branchInterfaces"] = limit["branchInterface"]
        if limit.get("iPv4PerInterface", 0) > 1:
            row["windowsAddresses"] = limit["iPv4PerInterface"] - 1
        for key, table in (("networkMbps", mbps), ("zones", zones)):
            if table.get(name):
                row[key] = table[name]
        (known if name in types else extra).append(row)
    for file, kind, rows in (("instance-types", "types", known), ("more-types", "tables", extra)):
        lines = [{"mortiseCatalog": 1, "kind": kind}, *rows]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        with open(f"{outdir}/{file}.jsonl.gz", "wb") as out:
            with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0, filename="") as packed:
                packed.write(text.encode())


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
