#!/usr/bin/env python3
"""Builds the embedded on-demand prices of mortise-aws-catalog from public price tables.

    build_prices.py TABLES INSTANCES ASOF OUT

TABLES     {"usdPerHour": {region: {type: amount}}, "asOf": {region: "YYYY-MM-DD"}}: tables made from the price list itself; they
           come first. Amounts of regions in China are yuan
INSTANCES  [{"instance_type", "pricing": {region: {"linux": {"ondemand": dollars}}}}]: prices of all commercial regions
ASOF       the day of INSTANCES, YYYY-MM-DD
Every input may be gzip-compressed. Output is byte-for-byte reproducible: sorted, no time stamps.
"""
import gzip
import json
import re
import sys

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")


def load(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        return json.load(file)


def micros(amount):
    whole = round(float(amount) * 1e6)
    assert abs(whole - float(amount) * 1e6) < 1e-3, f"{amount} has more than six decimals"
    return whole


def by_family(prices):
    families = {}
    for name in sorted(prices):
        family, size = name.split(".", 1)
        families.setdefault(family, {})[size] = prices[name]
    return families


def main(tables, instances, as_of, out):
    tables, regions = load(tables), {}
    for item in load(instances):
        for region, systems in item["pricing"].items():
            price = (systems.get("linux") or {}).get("ondemand")
            if REGION.fullmatch(region) and price and float(price) > 0:
                regions.setdefault(region, (as_of, {}))[1][item["instance_type"]] = micros(price)
    for region, prices in tables["usdPerHour"].items():
        regions[region] = (tables["asOf"][region], {name: micros(price) for name, price in prices.items() if price > 0})
    lines = [{"mortiseCatalog": 1, "kind": "prices"}]
    for region in sorted(regions):
        day, prices = regions[region]
        currency = "CNY" if region.startswith("cn-") else "USD"
        lines.append({"region": region, "currency": currency, "asOf": day, "prices": by_family(prices)})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    with open(out, "wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=9, mtime=0, filename="") as packed:
            packed.write(text.encode())


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
