"""TLS from a caller to an edge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

import hedgerow
from hedgerow import Tls
from hedgerow.gateway.v1 import gateway_pb2_grpc
from launcher.certificate_authority import make_authority
from tests.certificates import Certificates
from tests.integration.command import run
from tests.integration.scripted_gateway import ScriptedGateway, answer


@asynccontextmanager
async def edge(certificates: Certificates) -> AsyncIterator[str]:
    """The address of a scripted gateway behind TLS, which asks its callers for no certificate, as an edge does."""
    folder = certificates.folder / "edge"
    pair = ((folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes())
    server, scripted = grpc.aio.server(), ScriptedGateway()
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(scripted, server)
    scripted.script = answer("Paris.")
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield f"localhost:{port}"
    finally:
        await server.stop(0)


async def test_the_sdk_speaks_tls_to_an_edge(certificates: Certificates) -> None:
    trusted = Tls(certificates.folder / "ca.crt")
    async with edge(certificates) as target:
        async with hedgerow.AsyncClient(target, tls=trusted) as client:
            assert (await client.ask("?")).text

        def ask(tls: Tls | None) -> str:
            with hedgerow.Client(target, tls=tls) as client:
                return client.ask("?", budget_ms=5_000).text

        assert await asyncio.to_thread(ask, trusted)
        by_name = Tls((certificates.folder / "ca.crt").read_bytes(), server_name="edge.hedgerow")
        assert await asyncio.to_thread(ask, by_name)
        for distrusted in (Tls(make_authority().pem()), Tls(trusted.ca, server_name="gateway.hedgerow"), Tls()):
            with pytest.raises(hedgerow.Unavailable) as caught:
                await asyncio.to_thread(ask, distrusted)
            assert caught.value.reason == "NOT_TRUSTED"
        with pytest.raises(hedgerow.Unavailable, match="it may speak TLS alone") as caught:
            await asyncio.to_thread(ask, None)
        assert caught.value.reason == "HUNG_UP"


async def test_the_command_line_speaks_tls_to_an_edge(certificates: Certificates) -> None:
    ca = str(certificates.folder / "ca.crt")
    async with edge(certificates) as target:
        asked = ("ask", "?", "--json", "--gateway", target)
        for how in (("--ca-file", ca), ("--tls", "--ca-file", ca)):
            code, out, err = await run(*asked, *how)
            assert (code, json.loads(out)["finish_reason"]) == (0, "stop"), err
        code, out, _ = await run(*asked, HEDGEROW_TLS_CA=ca)
        assert (code, json.loads(out)["finish_reason"]) == (0, "stop")
        code, out, _ = await run(*asked, "--tls")
        assert (code, json.loads(out)["error"]["reason"]) == (1, "NOT_TRUSTED")
