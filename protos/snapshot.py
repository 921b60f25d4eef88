"""Keeps contracts compatible: `snapshot.json` lists what callers may rely on, and a contract test compares.

    python -m protos.snapshot              records additions; refuses when anything was removed or changed
    python -m protos.snapshot --breaking   records everything; callers that were built before will break

Field and enum numbers are what the wire carries, names what JSON and source code carry: both are pinned.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from protos.generate import describe

SNAPSHOT = Path(__file__).with_name("snapshot.json")
Surface = dict[str, str]  # full name -> what it is, for example "repeated string = 3"


def main() -> None:
    """Bring `snapshot.json` up to date, or exit with 1 and a list of what would break."""
    current = surface(describe())
    broken = breaks(read(), current) if SNAPSHOT.exists() else []
    if broken and "--breaking" not in sys.argv[1:]:
        sys.exit("\n".join(["the contracts break their callers (accept with --breaking):", *broken]))
    SNAPSHOT.write_text(json.dumps(current, indent=2, sort_keys=True) + "\n")
    print(f"{len(current)} names in {SNAPSHOT.name}")


def read() -> Surface:
    """The surface that was recorded last."""
    recorded: Surface = json.loads(SNAPSHOT.read_text())
    return recorded


def breaks(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """One line for each name that is gone or means something else. Additions break nobody."""
    return [
        f"{name}: was `{was}`, is {f'`{new[name]}`' if name in new else 'gone'}"
        for name, was in sorted(old.items())
        if new.get(name) != was
    ]


def surface(contracts: FileDescriptorSet) -> Surface:
    """Every message, field, enum value and method of the contracts."""
    found: Surface = {}
    for contract in contracts.file:
        for message in contract.message_type:
            found.update(_of_message(contract.package, message))
        for enum in contract.enum_type:
            found.update(_of_enum(contract.package, enum))
        for service in contract.service:
            found.update(_of_service(contract.package, service))
    return found


def _of_message(scope: str, message: DescriptorProto) -> Iterator[tuple[str, str]]:
    name = f"{scope}.{message.name}"
    yield name, "message"
    for field in message.field:
        yield f"{name}.{field.name}", _describe_field(message, field)
    for nested in message.nested_type:
        yield from _of_message(name, nested)
    for enum in message.enum_type:
        yield from _of_enum(name, enum)


def _describe_field(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    kind = field.type_name.lstrip(".") or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        kind = f"repeated {kind}"
    elif field.proto3_optional:
        kind = f"optional {kind}"
    elif field.HasField("oneof_index"):
        kind = f"{kind} in {message.oneof_decl[field.oneof_index].name}"
    return f"{kind} = {field.number}"


def _of_enum(scope: str, enum: EnumDescriptorProto) -> Iterator[tuple[str, str]]:
    yield f"{scope}.{enum.name}", "enum"
    for value in enum.value:
        yield f"{scope}.{enum.name}.{value.name}", str(value.number)


def _of_service(scope: str, service: ServiceDescriptorProto) -> Iterator[tuple[str, str]]:
    yield f"{scope}.{service.name}", "service"
    for method in service.method:
        request = f"{'stream ' * method.client_streaming}{method.input_type.lstrip('.')}"
        response = f"{'stream ' * method.server_streaming}{method.output_type.lstrip('.')}"
        yield f"{scope}.{service.name}.{method.name}", f"({request}) returns ({response})"


if __name__ == "__main__":
    main()
