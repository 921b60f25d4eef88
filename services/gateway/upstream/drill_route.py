"""The drill that a service's route asks for, as the control plane sends it."""

from __future__ import annotations

import grpc
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.type.v3 import percent_pb2

from services.gateway.upstream.drill import Drill

_FILTER = "envoy.filters.http.fault"
_OF = {
    percent_pb2.FractionalPercent.HUNDRED: 100,
    percent_pb2.FractionalPercent.TEN_THOUSAND: 10_000,
    percent_pb2.FractionalPercent.MILLION: 1_000_000,
}


def read(route: route_pb2.RouteConfiguration) -> Drill:
    """The drill of a service's route; one that does nothing where there is none. Raises `DecodeError`."""
    given = fault_pb2.HTTPFault()
    for host in route.virtual_hosts:
        if _FILTER in host.typed_per_filter_config:
            host.typed_per_filter_config[_FILTER].Unpack(given)
    return Drill(
        given.delay.fixed_delay.ToNanoseconds() / 1e9,
        share(given.delay.percentage),
        _status(given.abort.grpc_status),
        share(given.abort.percentage) if given.abort.grpc_status else 0.0,
    )


def share(percentage: percent_pb2.FractionalPercent) -> float:
    """0 to 1."""
    return min(1.0, float(percentage.numerator) / _OF.get(percentage.denominator, 100))


def _status(number: int) -> grpc.StatusCode:
    return next((code for code in grpc.StatusCode if code.value[0] == number), grpc.StatusCode.UNKNOWN)
