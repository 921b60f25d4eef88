"""Generated files are what their generators make."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import pairs
from protos.generate import REPOSITORY, find_stubs, generate
from scripts import helm_files
from scripts.unasync import DERIVED, SDK, derived
from tests.contract.chart import CHART


@pytest.mark.parametrize("source", DERIVED)
def test_a_blocking_client_is_derived_from_its_asyncio_client(source: str) -> None:
    assert (SDK / DERIVED[source]).read_text() == derived(SDK / source), "run `make sync`"


@pytest.mark.parametrize("module", DERIVED.values())
def test_a_blocking_client_waits_for_nothing_asynchronous(module: str) -> None:
    words = set((SDK / module).read_text().split())
    assert not words & {"async", "await", "asyncio"}


def test_stubs_are_what_the_contracts_generate(tmp_path: Path) -> None:
    generate(tmp_path)
    stubs = find_stubs(tmp_path)
    assert find_stubs(REPOSITORY) == stubs, "stubs are missing or left over: run `make proto`"
    stale = [str(stub) for stub in stubs if (REPOSITORY / stub).read_bytes() != (tmp_path / stub).read_bytes()]
    assert not stale, "stubs are stale: run `make proto`"
    assert all((tmp_path / package / "__init__.py").exists() for stub in stubs for package in stub.parents[:-1])


def test_fields_csv_has_every_field_of_the_published_schemas() -> None:
    assert pairs.PAGE.read_text() == pairs.render(), "run `make docs`"


def test_the_charts_files_are_what_the_code_writes(tmp_path: Path) -> None:
    helm_files.write(tmp_path)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert len(written) == 7
    kept = {
        path.relative_to(CHART / "files"): path.read_text()
        for path in (CHART / "files").rglob("*.*")
        if path.is_file() and path.suffix != ".sh"
    }
    assert kept == written, "run `make docs`"
