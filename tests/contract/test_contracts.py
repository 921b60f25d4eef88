"""The contracts keep buf's rules, and what callers rely on stays as `protos/snapshot.binpb` has it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

_ROOT = Path(__file__).parents[2]
_SNAPSHOT = "protos/snapshot.binpb"


def buf(*arguments: str | Path) -> str:
    """The output of buf; empty where it succeeds."""
    program = Path(sys.executable).with_name("buf")
    assert program.exists(), "requirements.lock has buf-bin: run `make setup`"
    ran = subprocess.run([program, *arguments], cwd=_ROOT, capture_output=True, text=True)
    said = ran.stdout + ran.stderr
    assert bool(said) is bool(ran.returncode), said
    return said


def test_the_contracts_keep_the_rules_of_style() -> None:
    assert buf("lint") == ""


def test_nothing_that_callers_rely_on_was_removed_or_changed() -> None:
    assert buf("breaking", "--against", _SNAPSHOT) == ""


def test_additions_are_recorded(tmp_path: Path) -> None:
    buf("build", "--exclude-source-info", "-o", tmp_path / "now.binpb")
    assert _read(tmp_path / "now.binpb") == _read(_ROOT / _SNAPSHOT), f"run `make proto` and commit {_SNAPSHOT}"


# Each is made to the router's contract.
CHANGES: dict[str, tuple[Callable[[FileDescriptorProto], object], str]] = {
    "a field removed": (lambda c: c.message_type[0].field.pop(), '"4" with name "samples"'),
    "a field renumbered": (lambda c: setattr(c.message_type[0].field[0], "number", 7), '"1" with name "p50_ms"'),
    "a field renamed": (lambda c: setattr(c.message_type[0].field[0], "name", "body"), 'from "p50_ms" to "body"'),
    "a field retyped": (
        lambda c: setattr(c.message_type[0].field[0], "type", FieldDescriptorProto.TYPE_BYTES),
        'changed type from "double" to "bytes"',
    ),
    "a field made repeated": (
        lambda c: setattr(c.message_type[0].field[0], "label", FieldDescriptorProto.LABEL_REPEATED),
        "changed cardinality",
    ),
    "an enum value renumbered": (lambda c: setattr(c.enum_type[0].value[1], "number", 9), '"1" on enum "ModelTier"'),
    "a method made streaming": (
        lambda c: setattr(c.service[0].method[2], "server_streaming", True),
        "to server streaming",
    ),
    "a service removed": (lambda c: c.service.pop(), '"RouterService"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_callers_is_named(change: str, tmp_path: Path) -> None:
    contracts = _read(_ROOT / _SNAPSHOT)
    apply, name = CHANGES[change]
    apply(next(contract for contract in contracts.file if contract.package == "hedgerow.router.v1"))
    (tmp_path / "changed.binpb").write_bytes(contracts.SerializeToString())
    assert name in buf("breaking", tmp_path / "changed.binpb", "--against", _SNAPSHOT)


def _read(file: Path) -> FileDescriptorSet:
    return FileDescriptorSet.FromString(file.read_bytes())
