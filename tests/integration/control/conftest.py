"""Servers that a control plane lists, and a topology that names them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.processes import ServiceSpec, free_ports
from tests.forked import ServiceProcess
from tests.integration.control.asked import Echo, Topology


@pytest.fixture
async def echo(tmp_path: Path) -> AsyncIterator[Echo]:
    """Starts echo servers, on an address each, and stops them after the test."""
    async with AsyncExitStack() as stack:

        async def echo(address: str) -> ServiceProcess:
            module, environment = "tests.integration.echo_server", {"ECHO_ADDRESS": address}
            process = ServiceProcess(ServiceSpec(f"echo-{address}", module, address, environment), tmp_path / "logs")
            stack.push_async_callback(process.stop)
            await process.wait_serving()
            return process

        yield echo


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """Writes the topology's file, as a careful operator does: beside it first, then in its place."""

    def write(**topology: Any) -> Path:
        file, new = tmp_path / "topology.yaml", tmp_path / "new"
        new.write_text(yaml.safe_dump(topology))
        return new.replace(file)

    return write


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(3)]
