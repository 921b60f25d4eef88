"""The location of a target, from its name alone: https://github.com/grpc/grpc/blob/master/doc/naming.md"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from hedgerow._errors import invalid

_URLS = ("http://", "https://", "grpc://", "grpcs://", "ws://", "wss://")


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
    """Whether what is sent to `target` cannot leave this machine: a socket in a file, an address of loopback, or
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
