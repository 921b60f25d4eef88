"""Whether a gateway is ready, as HTTP, gRPC health and the page for probes say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from launcher.processes import ServiceSpec, check_health, free_ports
from tests.forked import ServiceProcess
from tests.integration.scripted_llm import scripted_llm
from tests.integration.scripted_vision import serve_vision
from tests.waiting import until

STARTING, READY = (503, "NOT_SERVING", 503), (200, "SERVING", 200)


class Gateway:
    """A gateway process, which may not be ready."""

    def __init__(self, folder: Path, **settings: str):
        grpc, http, metrics = (f"127.0.0.1:{port}" for port in free_ports(3))
        usual = {"address": grpc, "http_address": http, "metrics_address": metrics, "router_address": ""}
        usual |= {"cache_address": "", **settings}
        environment = {f"HEDGEROW_GATEWAY_{name.upper()}": value for name, value in usual.items()}
        self.grpc, self.http, self.metrics = grpc, f"http://{http}", f"http://{metrics}"
        self.process = ServiceProcess(ServiceSpec("gateway", "services.gateway", grpc, environment), folder)

    async def __aenter__(self) -> Gateway:
        await until(self._listens)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.process.stop()

    async def said(self) -> tuple[int, str, int]:
        """By HTTP, by gRPC, and on the metrics' port."""
        return await _status(f"{self.http}/ready"), await check_health(self.grpc, 20), await self.readyz()

    async def readyz(self) -> int:
        return await _status(f"{self.metrics}/readyz")

    async def missing(self) -> Any:
        async with httpx.AsyncClient(timeout=30) as client:
            return (await client.get(f"{self.http}/ready")).json().get("missing")

    async def _listens(self) -> bool:
        try:
            return await _status(f"{self.http}/health") == 200
        except httpx.TransportError:
            return False


async def _status(url: str) -> int:
    async with httpx.AsyncClient(timeout=30) as client:
        return (await client.get(url)).status_code


async def test_a_gateway_is_ready_from_its_first_model_on_until_it_stops(tmp_path: Path) -> None:
    later, never = (f"127.0.0.1:{port}" for port in free_ports(2))
    async with Gateway(tmp_path, llm_addresses=json.dumps({"m": later, "n": never})) as gateway:
        assert (await gateway.said(), await gateway.missing()) == (STARTING, ["llm"])
        assert await _status(f"{gateway.metrics}/livez") == 200
        async with scripted_llm(later):
            await until(gateway.said, holds=lambda said: said == READY)
        assert await gateway.said() == READY, "the gateway stays ready when a model stops"


async def test_services_that_the_operator_requires_are_waited_for(tmp_path: Path) -> None:
    later = f"127.0.0.1:{free_ports(1)[0]}"
    async with scripted_llm() as llm:
        settings = {"llm_addresses": json.dumps({"m": llm.target}), "vision_address": later}
        async with Gateway(tmp_path, **settings, ready__services='["vision"]') as gateway:
            await until(gateway.missing, holds=lambda missing: missing == ["vision"])
            assert await gateway.said() == STARTING
            async with serve_vision(later):
                await until(gateway.said, holds=lambda said: said == READY)
