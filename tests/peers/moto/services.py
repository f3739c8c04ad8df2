"""Services that moto does not have: the price list, and zonal shifts. They are served before a request reaches moto."""

import json
from urllib.parse import unquote

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.moto_server import threaded_moto_server

_PAGE = 100


def install(cloud):
    moto = threaded_moto_server.DomainDispatcherApplication

    class Application(moto):
        def __call__(self, environ, start_response):
            reply = answer(cloud, environ)
            if reply is None:
                return super().__call__(environ, start_response)
            status, body = reply
            text = json.dumps(body).encode()
            headers = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))]
            start_response(status, headers)
            return [text]

    threaded_moto_server.DomainDispatcherApplication = Application


def answer(cloud, environ):
    target, path = environ.get("HTTP_X_AMZ_TARGET", ""), environ["PATH_INFO"]
    if target.startswith("AWSPriceListService."):
        service, action = "pricing", target.rpartition(".")[2]
        length = int(environ.get("CONTENT_LENGTH") or 0)
        call = lambda: get_products(cloud, json.loads(environ["wsgi.input"].read(length)))  # noqa: E731
    elif path.startswith("/managedresources/"):
        service, action = "arc-zonal-shift", "GetManagedResource"
        call = lambda: managed_resource(cloud, unquote(path.removeprefix("/managedresources/")))  # noqa: E731
    else:
        return None
    fault = cloud.begin(service, action)
    if fault and fault["hold"] and fault["when"] == "before":
        cloud.hold(fault)
    if fault and fault["code"] and fault["when"] == "before":
        return f"{fault['status'] or 400} Error", {"__type": fault["code"], "message": fault["message"]}
    refusal = cloud.refusal(service, action, {}, None)
    if refusal:
        return "400 Error", {"__type": "AccessDeniedException", "message": refusal}
    return "200 OK", call()


def get_products(cloud, request):
    """The offers of `AmazonEC2` that match the filters: on-demand prices, of metal and of other types apart."""
    filters = {each["Field"]: each["Value"] for each in request.get("Filters", [])}
    metal = filters.get("productFamily") == "Compute Instance (bare metal)"
    names = sorted(name for name in INSTANCE_TYPES if (".metal" in name) == metal)
    start = int(request.get("NextToken") or 0)
    end = start + min(int(request.get("MaxResults") or _PAGE), _PAGE)
    offers = [json.dumps(offer(cloud, name)) for name in names[start:end]]
    reply = {"FormatVersion": "aws_v1", "PriceList": offers}
    if end < len(names):
        reply["NextToken"] = str(end)
    return reply


def offer(cloud, name):
    price = cloud.price(name, "*", "on-demand")
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    return {
        "product": {"attributes": {"instanceType": name}},
        "terms": {"OnDemand": {f"{name}.offer": {"priceDimensions": {f"{name}.rate": dimension}}}},
    }


def managed_resource(cloud, arn):
    with cloud.changed:
        shifts = list(cloud.zonal_shifts)
    return {"appliedWeights": {}, "arn": arn, "autoshifts": [], "name": arn, "zonalShifts": shifts}
