"""A container's health check: `python -m services.runtime.probe 127.0.0.1:50050` exits with 0 when the service serves.

It asks `grpc.health.v1`, so an engine that still loads, or a service that drains, counts as not healthy. Where the
service authenticates its callers, `--tls-dir DIR` has the certificate; without it, the service's own is used, which the
environment names (`HEDGEROW_<SERVICE>_TLS_DIR`): a container holds no other.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow import HedgerowError, Tls
from hedgerow.channel import open_blocking_channel

_TIMEOUT_S = 2.0


def main(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Print the health of the service at an address. Returns 0 for SERVING, else 1."""
    parser = argparse.ArgumentParser(prog="python -m services.runtime.probe", description="Ask whether it serves.")
    parser.add_argument("address", help="host:port")
    parser.add_argument("--tls-dir", type=Path, help="folder with the caller's tls.crt, tls.key and ca.crt")
    parser.add_argument(
        "--service", help="the identity that must answer; without it, the certificate's host is checked"
    )
    given = parser.parse_args(argv)
    tls = Tls.from_folder(given.tls_dir, given.service) if given.tls_dir else own(environment)
    status = ask(given.address, tls)
    print(status)
    return 0 if status == "SERVING" else 1


def own(environment: Mapping[str, str]) -> Tls | None:
    """The credentials of the service that the environment is made for; None in plain text."""
    for name, value in environment.items():
        if value and (found := re.fullmatch("HEDGEROW_([A-Z]+)_TLS_DIR", name)):
            return Tls.from_folder(value, found[1].lower())
    return None


def ask(address: str, tls: Tls | None, timeout_s: float = _TIMEOUT_S) -> str:
    """SERVING, NOT_SERVING, …, or without an answer the name of the gRPC status code."""
    try:
        with open_blocking_channel(address, tls) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    except grpc.RpcError as error:
        code: Any = error
        return str(code.code().name)
    except HedgerowError as error:  # the certificate cannot be read
        return error.message
    return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
