"""The demo's mesh on the real engines: once for all tests that ask it, and no longer than they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import hedgerow
from tests.integration.collector import Collector, collecting
from tests.integration.running_up import PATIENT_STAGES, Up, ports_in_a_row, running_up


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Up]:
    """`hedgerow up --mesh`, which sends its spans to `collector`. One of each, so that it loads no more models than
    without `--mesh`, which `hedgerow demo` is."""
    port, options = ports_in_a_row(70), ("--mesh", "--replicas", "1", "--otlp-endpoint", f"http://{collector.address}")
    with running_up(tmp_path_factory.mktemp("mesh"), port, *options, environment=PATIENT_STAGES) as running:
        yield running
    assert running.stopped[0] == "envoy"


@pytest_asyncio.fixture(loop_scope="session")
async def client(up: Up) -> AsyncIterator[hedgerow.AsyncClient]:
    """The SDK, connected to the mesh's gateway: nothing before it takes part in its traces."""
    async with hedgerow.AsyncClient(up.address("gateway-1")) as connected:
        yield connected
