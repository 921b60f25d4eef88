"""The control plane's view of the mesh: as data, as tables, and whether all replicas are healthy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hedgerow.control.v1 import control_pb2 as pb

_SHORT = {"Listener": "LDS", "RouteConfiguration": "RDS", "Cluster": "CDS", "ClusterLoadAssignment": "EDS"}
_VERSION_SHOWN = 6  # characters: enough to distinguish two
_HEALTH_PREFIX = "ENDPOINT_HEALTH_"
_UNITS = ((1_000, "ms"), (60, "s"), (60, "min"), (24, "h"))


def as_data(mesh: pb.GetMeshResponse) -> dict[str, Any]:
    """For programs."""
    return {
        "ok": not problems(mesh),
        "problems": problems(mesh),
        "version": mesh.version,
        "topology_file": mesh.topology_file,
        "topology_problem": mesh.topology_problem,
        "services": [
            {
                "name": service.name,
                "balance": service.balance,
                "drill": service.drill,
                "endpoints": [{**_fields(endpoint), "health": health(endpoint)} for endpoint in service.endpoints],
            }
            for service in mesh.services
        ],
        "clients": [
            {**_fields(client), "subscriptions": [_fields(held) for held in client.subscriptions]}
            for client in mesh.clients
        ],
    }


def problems(mesh: pb.GetMeshResponse) -> list[str]:
    """One line for each problem; none when every endpoint serves and no client refuses its configuration."""
    return [
        *([f"the topology was refused: {mesh.topology_problem}"] if mesh.topology_problem else []),
        *(
            f"{service.name} at {endpoint.address} is {health(endpoint)}"
            for service in mesh.services
            for endpoint in service.endpoints
            if endpoint.health != pb.ENDPOINT_HEALTH_SERVING
        ),
        *(
            f"{client.node} refuses {kind(held)}: {held.refused}"
            for client in mesh.clients
            for held in client.subscriptions
            if held.refused
        ),
    ]


def as_tables(mesh: pb.GetMeshResponse) -> RenderableType:
    """Tables for people. Problems come last, where a reader of a terminal looks first."""
    head = Text.assemble("version ", (mesh.version[:_VERSION_SHOWN], "bold"), f" of {mesh.topology_file}")
    wrong = [Text(problem, "red") for problem in problems(mesh)]
    drills = [Text(f"drill: {service.name}: {service.drill}", "yellow") for service in mesh.services if service.drill]
    gap = [Text()] if wrong or drills else []
    return Group(head, Text(), _endpoints(mesh), Text(), _clients(mesh), *gap, *drills, *wrong)


def _endpoints(mesh: pb.GetMeshResponse) -> Table:
    table = _table("service", "balance", "endpoint")
    every = [endpoint for service in mesh.services for endpoint in service.endpoints]
    optional = ("region", "zone", "build", "weight")
    distinguishing = [name for name in optional if len({getattr(each, name) for each in every}) > 1]
    for name in (*distinguishing, "health", "for", "traffic"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("weight", "for") else "left")
    for service in mesh.services:
        names = iter((service.name, service.balance))
        for endpoint in service.endpoints:
            table.add_row(
                next(names, ""),
                next(names, ""),
                endpoint.address,
                *(str(getattr(endpoint, name)) for name in distinguishing),
                Text(health(endpoint), "green" if endpoint.health == pb.ENDPOINT_HEALTH_SERVING else "red"),
                duration(endpoint.health_ms),
                Text("in", "green") if endpoint.in_service else Text("out", "red"),
            )
    return table


def _clients(mesh: pb.GetMeshResponse) -> RenderableType:
    if not mesh.clients:
        return Text("no client is connected over xDS", "yellow")
    several = len({client.region for client in mesh.clients}) > 1
    table = _table("client", "agent", *(["region"] if several else []))
    table.add_column("for", no_wrap=True, justify="right")
    table.add_column("follows", overflow="fold")
    for name in _SHORT.values():
        table.add_column(name, overflow="fold")
    before = ""
    for client in sorted(mesh.clients, key=lambda client: (client.node, client.agent, _follows(client))):
        held = {kind(each): _held(each) for each in client.subscriptions}
        where = [client.region] if several else []
        node, before = "" if client.node == before else client.node, client.node
        agent = client.agent.partition(" linux")[0]
        versions = (held.get(name, Text()) for name in _SHORT.values())
        table.add_row(node, agent, *where, duration(client.connected_ms), _follows(client), *versions)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _follows(client: pb.Client) -> str:
    if any(not held.names for held in client.subscriptions):
        return "everything"
    return " ".join(dict.fromkeys(name for held in client.subscriptions for name in held.names))


def _held(held: pb.Subscription) -> Text:
    """The version of one type that is in force at a client: green when it is the one that was sent last."""
    sent, acked = (version[:_VERSION_SHOWN] or "none" for version in (held.sent_version, held.acked_version))
    if held.refused:
        return Text(f"{acked}, refused {sent}", "red")
    return Text(acked, "green") if sent == acked else Text(f"{acked}, sent {sent}", "yellow")


def health(endpoint: pb.Endpoint) -> str:
    """As `hedgerow status` says it; `UNKNOWN` before it was asked."""
    name = pb.EndpointHealth.Name(endpoint.health).removeprefix(_HEALTH_PREFIX)
    return "UNKNOWN" if name == "UNSPECIFIED" else name


def kind(held: pb.Subscription) -> str:
    """The xDS name of the type's stream, `EDS` for example; the last part of its name for another type."""
    name = held.type_url.rpartition(".")[2]
    return _SHORT.get(name, name)


def duration(ms: float) -> str:
    """A time to read, in its largest unit: `120 ms`, `12 s`, `3 min`, `2 h`, `5 d`."""
    for size, unit in _UNITS:
        if ms < size:
            return f"{ms:.0f} {unit}"
        ms //= size
    return f"{ms:.0f} d"


def _fields(message: Any) -> Mapping[str, Any]:
    """The fields that hold one value or a list of plain ones, unset ones included."""
    plain = (field for field in message.DESCRIPTOR.fields if field.message_type is None)
    return {f.name: list(getattr(message, f.name)) if f.is_repeated else getattr(message, f.name) for f in plain}
