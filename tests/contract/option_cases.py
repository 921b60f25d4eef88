"""A value of each option of a request on each surface, and the request that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import Kind, RequestOption


@dataclass(frozen=True)
class Case:
    """One option, given on each surface, and the request that comes of it."""

    sdk: Mapping[str, Any]
    http: Any
    flags: tuple[str, ...]
    request: pb.GenerateRequest
    http_request: pb.GenerateRequest | None = None  # where it is another one
    order: Mapping[str, Any] = field(default_factory=dict)  # for the HTTP API itself


VALUES: Mapping[Kind, Any] = {
    Kind.WHOLE: 7,
    Kind.NUMBER: 0.75,
    Kind.FLAG: True,
    Kind.TEXT: "acme",
    Kind.TEXTS: "acme",
}


OWN = {
    "cache": Case(
        {"cache": "exact"},
        "exact",
        ("--cache", "exact"),
        pb.GenerateRequest(cache=pb.CachePolicy(use=pb.CACHE_USE_EXACT)),
    ),
    "cascade": Case(
        {"cascade": ["form", "judge"]},
        "form,judge",
        ("--cascade", "form", "--cascade", "judge"),
        pb.GenerateRequest(cascade=pb.Cascade(verifiers=[pb.VERIFIER_FORM, pb.VERIFIER_JUDGE])),
    ),
    # By HTTP nothing in the request says so: the answer is in one piece, or refused.
    "cascade_at_once": Case(
        {"cascade": ["form"], "cascade_at_once": True},
        True,
        ("--cascade", "form", "--cascade-at-once"),
        pb.GenerateRequest(cascade=pb.Cascade(verifiers=[pb.VERIFIER_FORM], at_once=True)),
        pb.GenerateRequest(),
        {"at_once": True},
    ),
    "guard": Case(
        {"guard": {"personal": "mask"}},
        "personal=mask",
        ("--guard", "personal=mask"),
        pb.GenerateRequest(guard=pb.GuardPolicy(personal=pb.GUARD_ACTION_MASK)),
    ),
    "mesh_tools": Case(
        {"mesh_tools": ["news", "weather"]},
        ["news", "weather"],
        ("--tool", "news", "--tool", "weather"),
        pb.GenerateRequest(mesh_tools=[pb.MeshTool(name="news"), pb.MeshTool(name="weather")]),
    ),
}


def case_of(option: RequestOption) -> Case:
    if option.name in OWN:
        return OWN[option.name]
    value = VALUES.get(option.kind) or (option.words[-1] if option.kind is Kind.WORD else list(option.words[-2:]))
    flag = f"--{option.name.replace('_', '-')}"
    words = value if isinstance(value, list) else [value]
    flags = (flag,) if value is True else tuple(part for word in words for part in (flag, str(word)))
    request, order = pb.GenerateRequest(), {}
    if option.place:
        set_field(request, option, words)
    else:
        order = {option.name: value}
    return Case({option.name: value}, value, flags, request, None, order)


def set_field(request: pb.GenerateRequest, option: RequestOption, values: list[Any]) -> None:
    """Set the field of the contract, found by its path and its enum's names alone."""
    *path, name = option.place.split(".")
    message: Any = request
    for part in path:
        message = getattr(message, part)
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    if enum:
        values = [
            number.number for word in values for number in enum.values if number.name.endswith(f"_{word.upper()}")
        ]
    elif option.kind is Kind.WORD:
        values = [True]
    if message.DESCRIPTOR.fields_by_name[name].is_repeated:
        getattr(message, name).extend(values)
    else:
        setattr(message, name, values[0])
