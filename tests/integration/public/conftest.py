"""`hedgerow up` on the public models of the catalogue, once for all tests that ask it.

The models are pulled when they are missing, and stay in the user's cache folder. If that fails, the tests
are skipped and say so; with HEDGEROW_TESTS_NEED_MODELS they fail.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import hedgerow
from launcher import catalog
from launcher.demo import PULLED
from launcher.mesh import HTTP_OFFSET
from tests.integration.running_up import PATIENT_STAGES, Up, ports_in_a_row, running_up


@pytest.fixture(scope="package")
def pulled() -> None:
    """The demo's models are on this machine."""
    try:
        catalog.pull(PULLED)
    except catalog.CatalogError as error:
        if os.environ.get("HEDGEROW_TESTS_NEED_MODELS"):
            raise
        pytest.skip(f"no public models: {error}")


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory, pulled: None) -> Iterator[Up]:
    """`hedgerow up`, as its users run it."""
    folder, port = tmp_path_factory.mktemp("public"), ports_in_a_row(40)
    with running_up(folder, port, program="hedgerow_cli", environment=PATIENT_STAGES) as running:
        yield running


@pytest.fixture(scope="package")
def http(up: Up) -> str:
    """The address of the HTTP API, `http://host:port`."""
    host, _, port = up.target.partition(":")
    return f"http://{host}:{int(port) + HTTP_OFFSET}"


@pytest_asyncio.fixture(loop_scope="session")
async def client(up: Up) -> AsyncIterator[hedgerow.AsyncClient]:
    """The SDK, connected to the gateway."""
    async with hedgerow.AsyncClient(up.target) as connected:
        yield connected
