"""Envoys in front of one scripted gateway: open, closed to callers without a key, and guarded by TLS and tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from launcher.certificate_authority import Authority
from tests.certificates import Certificates
from tests.integration.collector import Collector, collecting
from tests.integration.edge.calls import CHECKS, CONNECTIONS, ORIGIN, STREAMS
from tests.integration.edge.running import Edge, Gateway, Issuer, edge_before, gateway
from tests.integration.scripted_gateway import answer


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def behind() -> AsyncIterator[Gateway]:
    """The gateway behind all edges but the last."""
    async with gateway() as scripted:
        yield scripted


@pytest_asyncio.fixture(loop_scope="session")
async def scripted(behind: Gateway) -> Gateway:
    behind.script, behind.metadata = answer("Par", "is."), {}
    return behind


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def edge(behind: Gateway, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    """Plain text, open to all: the gateway checks credentials."""
    settings = {"cors_origins": [ORIGIN], "limits": {"streams_per_connection": STREAMS, "connections": CONNECTIONS}}
    async with edge_before(tmp_path_factory.mktemp("open"), [behind.target], settings) as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def closed(behind: Gateway, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Edge]:
    """As it is beyond loopback: no call reaches a gateway without a key, be it a wrong one."""
    settings = {"cors_origins": [ORIGIN], "allow_anonymous": False, "limits": {"health_checks": CHECKS}}
    async with edge_before(tmp_path_factory.mktemp("closed"), [behind.target], settings) as running:
        yield running


@pytest.fixture(scope="package")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="package")
def authority(certificates: Certificates) -> Authority:
    return certificates.authority


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def guarded(
    behind: Gateway,
    issuer: Issuer,
    collector: Collector,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Edge]:
    """TLS, tokens and traces."""
    folder = tmp_path_factory.mktemp("guarded")
    jwt = issuer.written(folder)
    settings = {"tls": True, "jwt": jwt, "cors_origins": ["*"], "otlp_endpoint": collector.address}
    own = {"edge_tls_dir": certificates.folder / "edge", "otlp_address": collector.address}
    async with edge_before(folder, [behind.target], settings, **own) as running:
        yield running
