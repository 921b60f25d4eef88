"""The contracts keep buf's STANDARD and COMMENTS rules, as far as descriptors show them.

`make check` runs buf itself where npx is found; these hold without it.
Source of the rules: https://buf.build/docs/lint/rules/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)

from protos.generate import describe

CONTRACTS = describe().file
SERVICES = [service for contract in CONTRACTS for service in contract.service]

# Tags of descriptor.proto, of which SourceCodeInfo paths are made: what may stand inside what.
MEMBERS = {
    "FileDescriptorProto": (("message_type", 4), ("enum_type", 5), ("service", 6)),
    "DescriptorProto": (("field", 2), ("nested_type", 3), ("enum_type", 4), ("oneof_decl", 8)),
    "EnumDescriptorProto": (("value", 2),),
    "ServiceDescriptorProto": (("method", 2),),
}


def elements(parent: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Everything that needs a comment, with its path in SourceCodeInfo."""
    for member, tag in MEMBERS.get(type(parent).__name__, ()):
        for index, element in enumerate(getattr(parent, member)):
            if member == "oneof_decl" and _is_synthetic(parent, index):
                continue
            if member == "nested_type" and element.options.map_entry:  # no contract spells those out
                continue
            yield (*path, tag, index), element
            yield from elements(element, (*path, tag, index))


def _is_synthetic(message: Any, index: int) -> bool:
    """Whether a oneof stands for one `optional` field."""
    return any(field.proto3_optional and field.oneof_index == index for field in message.field)


def enums(contract: FileDescriptorProto) -> Sequence[EnumDescriptorProto]:
    return [element for _, element in elements(contract) if isinstance(element, EnumDescriptorProto)]


each_contract = pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.package)


@each_contract
def test_the_directory_is_the_package(contract: FileDescriptorProto) -> None:
    directory, _, file = contract.name.rpartition("/")
    assert directory.replace("/", ".") == contract.package
    assert re.fullmatch(r"hedgerow\.[a-z]+\.v[0-9]+", contract.package)
    assert file == f"{contract.package.split('.')[1]}.proto"


@each_contract
def test_everything_has_a_comment(contract: FileDescriptorProto) -> None:
    commented = {tuple(at.path) for at in contract.source_code_info.location if at.leading_comments.strip()}
    assert [element.name for path, element in elements(contract) if path not in commented] == []


@each_contract
def test_enum_values_carry_the_name_of_their_enum_and_start_unspecified(contract: FileDescriptorProto) -> None:
    for enum in enums(contract):
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper()
        assert (enum.value[0].name, enum.value[0].number) == (f"{prefix}_UNSPECIFIED", 0)
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value)


@each_contract
def test_fields_are_in_snake_case_and_all_other_names_in_pascal_case(contract: FileDescriptorProto) -> None:
    for _, element in elements(contract):
        if isinstance(element, FieldDescriptorProto | OneofDescriptorProto):
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", element.name)
        elif not isinstance(element, EnumValueDescriptorProto):
            assert re.fullmatch(r"([A-Z][a-z0-9]*)+", element.name)


def test_services_end_in_service() -> None:
    assert all(service.name.endswith("Service") for service in SERVICES)


def test_every_method_has_a_request_and_a_response_of_its_own() -> None:
    for contract in CONTRACTS:
        for service in contract.service:
            for method in service.method:
                assert method.input_type == f".{contract.package}.{method.name}Request"
                assert method.output_type == f".{contract.package}.{method.name}Response"
    used = Counter(
        kind for service in SERVICES for method in service.method for kind in (method.input_type, method.output_type)
    )
    assert max(used.values()) == 1
