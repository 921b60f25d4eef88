"""The blocking clients are what `make sync` makes of the asyncio ones."""

from __future__ import annotations

import pytest

from scripts.unasync import DERIVED, SDK, derived


@pytest.mark.parametrize("source", DERIVED)
def test_a_blocking_client_is_derived_from_its_asyncio_client(source: str) -> None:
    assert (SDK / DERIVED[source]).read_text() == derived(SDK / source), "run `make sync`"


@pytest.mark.parametrize("module", DERIVED.values())
def test_a_blocking_client_waits_for_nothing_asynchronous(module: str) -> None:
    words = set((SDK / module).read_text().split())
    assert not words & {"async", "await", "asyncio"}
