"""What callers rely on in a contract stays as it was recorded in `protos/snapshot.json`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from protos import snapshot
from protos.generate import describe


def test_nothing_that_callers_rely_on_was_removed_or_changed() -> None:
    assert snapshot.breaks(snapshot.read(), snapshot.surface(describe())) == []


def test_additions_are_recorded() -> None:
    added = snapshot.surface(describe()).keys() - snapshot.read().keys()
    assert not added, "run `make proto` and commit protos/snapshot.json"


CONTRACT = """
file {
  name: "a.proto" package: "a.v1"
  message_type {
    name: "Thing"
    field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "count" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  }
  enum_type { name: "Kind" value { name: "KIND_A" number: 1 } }
  service { name: "ThingService" method { name: "Do" input_type: ".a.v1.Thing" output_type: ".a.v1.Thing" } }
}
"""


@pytest.fixture
def contracts() -> FileDescriptorSet:
    return text_format.Parse(CONTRACT, FileDescriptorSet())


CHANGES: dict[str, tuple[Callable[[FileDescriptorSet], object], str]] = {
    "a field removed": (lambda c: c.file[0].message_type[0].field.pop(), "a.v1.Thing.count"),
    "a field renumbered": (lambda c: setattr(c.file[0].message_type[0].field[0], "number", 7), "a.v1.Thing.text"),
    "a field renamed": (lambda c: setattr(c.file[0].message_type[0].field[0], "name", "body"), "a.v1.Thing.text"),
    "a field retyped": (
        lambda c: setattr(c.file[0].message_type[0].field[0], "type", FieldDescriptorProto.TYPE_BYTES),
        "a.v1.Thing.text",
    ),
    "a field made repeated": (
        lambda c: setattr(c.file[0].message_type[0].field[1], "label", FieldDescriptorProto.LABEL_REPEATED),
        "a.v1.Thing.count",
    ),
    "an enum value renumbered": (lambda c: setattr(c.file[0].enum_type[0].value[0], "number", 2), "a.v1.Kind.KIND_A"),
    "a method made streaming": (
        lambda c: setattr(c.file[0].service[0].method[0], "server_streaming", True),
        "a.v1.ThingService.Do",
    ),
    "a service removed": (lambda c: c.file[0].service.pop(), "a.v1.ThingService"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_callers_is_named(change: str, contracts: FileDescriptorSet) -> None:
    before = snapshot.surface(contracts)
    apply, name = CHANGES[change]
    apply(contracts)
    assert any(line.startswith(f"{name}: was") for line in snapshot.breaks(before, snapshot.surface(contracts)))


def test_an_addition_breaks_nobody(contracts: FileDescriptorSet) -> None:
    before = snapshot.surface(contracts)
    contracts.file[0].message_type[0].field.add(name="more", number=3, type=FieldDescriptorProto.TYPE_BOOL)
    contracts.file[0].message_type.add(name="Other")
    assert snapshot.breaks(before, snapshot.surface(contracts)) == []
