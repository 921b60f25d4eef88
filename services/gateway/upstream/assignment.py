"""What the control plane assigns to a model: its replicas, and the drill that is done to calls to them.

A drill injects faults, as gRPC's and Envoy's fault filters do (`envoy.extensions.filters.http.fault.v3`, gRFC A33). The
gateway calls llm services itself, so it injects them itself. A delay holds the answer back, as a slow replica would, so
that hedges and deadlines can be watched. `discovery.py` reads both from the control plane's messages.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from services.gateway.upstream.balance import Locality

SCHEME = "xds:///"


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of a call: a delay of `delay_s`, then an end with `code`, if there is one."""

    delay_s: float = 0.0
    code: grpc.StatusCode | None = None

    def words(self) -> str:
        """The fault for people."""
        delay = f"{self.delay_s * 1000:.0f} ms" if self.delay_s else ""
        return f"{' and '.join(filter(None, (delay, self.code and self.code.name)))}, by a drill"


@dataclass(frozen=True, slots=True)
class AssignedDrill:
    """The shares of calls that are delayed and aborted."""

    delay_s: float = 0.0
    delay_share: float = 0.0
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    abort_share: float = 0.0

    def fault(self, rng: random.Random) -> Fault | None:
        """Drawn for one call."""
        delay_s = self.delay_s if rng.random() < self.delay_share else 0.0
        code = self.code if rng.random() < self.abort_share else None
        return Fault(delay_s, code) if delay_s or code else None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of one service that are in service, by address. `drop_share` of the calls are to be refused, while
    a drill runs."""

    replicas: Mapping[str, Locality]
    drop_share: float = 0.0
