"""Starts moto as a library with our changes, and a control endpoint beside it.

    python launcher.py PRICES READY REGION

PRICES is a JSON object of on-demand dollars per hour by instance type. When both servers listen, READY is written: a JSON
object with `endpoint` and `control`.
"""

import json
import logging
import os
import sys

# Nothing here may ever reach a real account or a metadata service.
os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true")
os.environ.pop("AWS_PROFILE", None)

from moto.server import ThreadedMotoServer  # noqa: E402

import control  # noqa: E402
import fleet  # noqa: E402
import patches  # noqa: E402
import reservations  # noqa: E402
import services  # noqa: E402
from cloud import Cloud  # noqa: E402


def main(prices, ready, region):
    # One line per request would bury what matters; tests count calls by the control endpoint.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with open(prices, encoding="utf-8") as file:
        cloud = Cloud(json.load(file))
    patches.install(cloud)
    fleet.install(cloud)
    reservations.install(cloud)
    services.install(cloud)
    # Port 0: the kernel chooses, so that no other program can come between.
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    server = control.serve(control.Control(cloud, endpoint, region))
    with open(f"{ready}.partial", "w", encoding="utf-8") as file:
        json.dump({"endpoint": endpoint, "control": "http://{}:{}".format(*server.server_address[:2])}, file)
    os.rename(f"{ready}.partial", ready)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
