"""HTTP by mutual TLS: authorized callers, and callers that may name a tenant."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from launcher.processes import free_port
from tests.certificates import Certificates, mutual
from tests.waiting import until

PATH = "/v1/models"


@pytest.fixture
async def port(certificates: Certificates, tmp_path: Path) -> AsyncIterator[int]:
    """The address of a gateway that requires a tenant which the edge has authenticated."""
    port = free_port()
    settings = {
        "llm_addresses": json.dumps({"m": f"127.0.0.1:{free_port()}"}),
        "cache_address": "",
        "router_address": "",
        "http_address": f"127.0.0.1:{port}",
        "edge_tokens": "true",
        "ready__models": "0",
    }
    async with AsyncExitStack() as stack:
        await mutual(stack, certificates, tmp_path, "gateway", **settings)
        yield port


def as_(certificates: Certificates, identity: str, port: int) -> httpx.AsyncClient:
    """A client with that identity's certificate."""
    context = ssl.create_default_context(cafile=str(certificates.folder / identity / "ca.crt"))
    context.check_hostname = False  # the certificate is for its name in the mesh
    context.load_cert_chain(certificates.folder / identity / "tls.crt", certificates.folder / identity / "tls.key")
    return httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=20)


async def test_only_the_edge_may_name_the_tenant_of_a_request(certificates: Certificates, port: int) -> None:
    tenant = {"x-hedgerow-tenant": "acme"}
    async with as_(certificates, "edge", port) as edge, as_(certificates, "operator", port) as operator:
        assert (await edge.get(PATH, headers=tenant)).status_code == 200
        assert (await edge.get(PATH)).status_code == 401
        assert (await edge.get(PATH, headers=[*tenant.items(), *tenant.items()])).status_code == 401
        assert (await operator.get(PATH, headers=tenant)).status_code == 401
        assert (await operator.get("/health")).status_code == 200


async def test_a_service_and_a_caller_without_a_certificate_are_refused(certificates: Certificates, port: int) -> None:
    async with as_(certificates, "cache", port) as cache:
        refused = await cache.get(PATH, headers={"x-hedgerow-tenant": "acme"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "caller_refused")
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=False, timeout=20) as stranger:
        with pytest.raises(httpx.TransportError):
            await stranger.get("/health")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as plain:
        with pytest.raises(httpx.TransportError):
            await plain.get("/health")


async def test_new_connections_meet_a_renewed_certificate_and_old_ones_go_on(
    certificates: Certificates, port: int
) -> None:
    tenant = {"x-hedgerow-tenant": "acme"}
    async with as_(certificates, "edge", port) as before:
        assert (await before.get(PATH, headers=tenant)).status_code == 200
        served = await _served(certificates, port)
        certificates.renew("gateway")
        await until(lambda: _served(certificates, port), holds=lambda now: now != served)
        assert (await before.get(PATH, headers=tenant)).status_code == 200


async def _served(certificates: Certificates, port: int) -> bytes:
    """The certificate that the gateway shows."""
    async with as_(certificates, "edge", port) as client, client.stream("GET", "/health") as answer:
        own: ssl.SSLObject = answer.extensions["network_stream"].get_extra_info("ssl_object")
        return own.getpeercert(binary_form=True) or b""
