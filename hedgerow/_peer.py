"""The address of a peer, the caller's credentials, and the caller's span, which makes both sides parts of one trace."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TypeAlias

from hedgerow._errors import InvalidArgument, invalid
from hedgerow._tls import Tls

Metadata: TypeAlias = tuple[tuple[str, str], ...]  # what travels with a call, as gRPC takes it
_URLS = ("http://", "https://", "grpc://", "grpcs://", "ws://", "wss://")


@dataclass(frozen=True, slots=True)
class Peer:
    """A service at an address: `host:port`, `unix:path` or `xds:///name`. Raises `InvalidArgument` for an URL, for
    an API key that no header can hold, and for one that would leave this machine in plain text."""

    target: str
    api_key: str | None = None
    service: str = "gateway"  # what errors call it
    tls: Tls | None = None  # None: plain text
    allow_plaintext_key: bool = False  # whether the key may leave this machine in plain text

    def __post_init__(self) -> None:
        refuse_url(self.target, self.service)
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            advice = "a key that is read from a file may end with a line break"
            raise invalid("api_key", "printable ASCII characters", "others", advice)
        if self.api_key and not (self.tls or self.allow_plaintext_key or stays_here(self.target)):
            raise InvalidArgument(
                f"tls: required to send an API key to the {self.service} at {self.target}, which may be another "
                "machine, got none; allow_plaintext_key=True sends it nevertheless, readable on the network",
                reason="PLAINTEXT_KEY",
                metadata={"field": "tls", "limit": "required to send an API key", "value": "none"},
            )

    def metadata(self) -> Metadata:
        """Metadata of a call: the credential and the caller's span."""
        key = (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()
        return (*key, *trace_headers())


def trace_headers() -> tuple[tuple[str, str], ...]:
    """W3C headers of the current span, as gRPC metadata; empty where the application does not use OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:  # never loaded, so no span can be current
        return ()
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return tuple((key.lower(), value) for key, value in carrier.items())


def refuse_url(target: str, service: str) -> None:
    """Raise `InvalidArgument` for an URL: gRPC would look up all of it as a host's name."""
    scheme = next((each for each in _URLS if target.lower().startswith(each)), None)
    if scheme is None:
        return
    host = target[len(scheme) :].partition("/")[0]
    secure = ", with tls=hedgerow.Tls() for TLS" if scheme in ("https://", "grpcs://", "wss://") else ""
    limit = "host:port, unix:path or xds:///name"
    raise invalid(
        "target", f"{limit}, the gRPC port of the {service}", target, f"without the scheme it is {host}{secure}"
    )


def stays_here(target: str) -> bool:
    """Whether what is sent to `target` (https://github.com/grpc/grpc/blob/master/doc/naming.md) cannot leave this
    machine: a socket in a file, an address of loopback, or
    `localhost`. A name that only a resolver knows (`xds:///name`, a DNS server in the target) may."""
    scheme, _, rest = target.partition(":")
    match scheme:
        case "unix" | "unix-abstract":
            return True
        case "ipv4" | "ipv6":
            return all(_is_loopback(_host(address)) for address in rest.lstrip("/").split(","))
        case "dns":
            rest = rest.removeprefix("///")
            return not rest.startswith("//") and _is_loopback(_host(rest))
    return _is_loopback(_host(target))


def _host(address: str) -> str:
    """Of `host:port`, `[host]:port` or a host alone."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host = address.rpartition(":")[0]
    return host if host and ":" not in host else address


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        address = ip_address(host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback
    return host.lower().removesuffix(".") == "localhost"
