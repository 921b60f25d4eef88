"""Faults on purpose, as the topology's drills ask for them: what gRPC's and Envoy's fault filters do to other calls.

The gateway calls llms itself, so it reads the same configuration (`envoy.extensions.filters.http.fault.v3`, gRFC A33)
and does it itself. A delay holds the answer back, as a slow replica would, so that what hedges and deadlines do about
it can be watched.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import grpc
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.type.v3 import percent_pb2

_FILTER = "envoy.filters.http.fault"
_OF = {
    percent_pb2.FractionalPercent.HUNDRED: 100,
    percent_pb2.FractionalPercent.TEN_THOUSAND: 10_000,
    percent_pb2.FractionalPercent.MILLION: 1_000_000,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one call: it is held back for `delay_s`, then ended with `code`, if there is one."""

    delay_s: float = 0.0
    code: grpc.StatusCode | None = None

    def words(self) -> str:
        """For people."""
        delay = f"{self.delay_s * 1000:.0f} ms" if self.delay_s else ""
        return f"{' and '.join(filter(None, (delay, self.code and self.code.name)))}, by a drill"


@dataclass(frozen=True, slots=True)
class Drill:
    """Which share of the calls is delayed, and which is aborted."""

    delay_s: float = 0.0
    delay_share: float = 0.0
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    abort_share: float = 0.0

    def fault(self, rng: random.Random) -> Fault | None:
        """Drawn for one call."""
        delay_s = self.delay_s if rng.random() < self.delay_share else 0.0
        code = self.code if rng.random() < self.abort_share else None
        return Fault(delay_s, code) if delay_s or code else None


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
