"""The stubs in `hedgerow/` are what the contracts in `protos/` generate."""

from __future__ import annotations

from pathlib import Path

from protos.generate import REPOSITORY, find_stubs, generate


def test_stubs_are_what_the_contracts_generate(tmp_path: Path) -> None:
    generate(tmp_path)
    assert find_stubs(REPOSITORY) == find_stubs(tmp_path), "stubs are missing or left over: run `make proto`"
    stale = [
        str(stub) for stub in find_stubs(tmp_path) if (REPOSITORY / stub).read_bytes() != (tmp_path / stub).read_bytes()
    ]
    assert not stale, "stubs are stale: run `make proto`"


def test_every_stub_lies_in_a_package(tmp_path: Path) -> None:
    generate(tmp_path)
    assert all(
        (tmp_path / package / "__init__.py").exists() for stub in find_stubs(tmp_path) for package in stub.parents[:-1]
    )
