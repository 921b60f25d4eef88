"""HTTP through the real Envoy, over HTTP/1.1 and HTTP/2: the same answers, drills, and pages of other origins. Clients
that leave: test_cancellation.py."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
import yaml

from tests.certificates import Certificates
from tests.conftest import Start
from tests.integration.edge.calls import ORIGIN
from tests.integration.edge.running import Edge, edge_before
from tests.integration.http_gateway import QUESTION, start_http_gateway
from tests.integration.scripted import Refusal
from tests.integration.scripted_llm import ScriptedLlm
from tests.waiting import until

PATH = "/v1/chat/completions"


@pytest.fixture
async def edge(start: Start, llm: ScriptedLlm, certificates: Certificates, tmp_path: Path) -> AsyncIterator[Edge]:
    """TLS to callers, plain text to a gateway that serves both."""
    gateway = await start_http_gateway(start, llm)
    endpoint = {"address": gateway.process.spec.address, "http_port": gateway.port}
    own = certificates.folder / "edge"
    async with edge_before(tmp_path, [endpoint], {"tls": True}, edge_tls_dir=own) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["http/1.1", "h2"])
async def http(
    request: pytest.FixtureRequest, edge: Edge, certificates: Certificates
) -> AsyncIterator[httpx.AsyncClient]:
    context = ssl.create_default_context(cadata=certificates.authority.pem().decode())
    async with httpx.AsyncClient(
        base_url=f"https://{edge.address}", verify=context, http2=request.param, timeout=20
    ) as connected:
        await until(lambda: _serves(connected))
        yield connected


async def _serves(http: httpx.AsyncClient) -> bool:
    return await _answers(http, 200)


async def _answers(http: httpx.AsyncClient, status: int) -> bool:
    return (await http.get("/v1/models")).status_code == status


async def test_answers_come_through_streamed_and_whole(http: httpx.AsyncClient, llm: ScriptedLlm) -> None:
    whole = await http.post(PATH, json=QUESTION)
    assert whole.json()["choices"][0]["message"]["content"] == "Paris."
    streamed = await http.post(PATH, json={**QUESTION, "stream": True})
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert streamed.http_version == whole.http_version
    llm.script = [Refusal("UNAVAILABLE", "gone")]
    broken = await http.post(PATH, json=QUESTION)
    assert (broken.status_code, broken.json()["error"]["type"]) == (503, "server_error")


@pytest.mark.parametrize("http", [True], indirect=True)
async def test_a_drill_of_the_gateway_aborts_calls_by_http_until_it_is_removed(
    http: httpx.AsyncClient, edge: Edge, llm: ScriptedLlm
) -> None:
    file = edge.folder / "topology.yaml"
    without = file.read_text()
    topology = yaml.safe_load(without)
    topology["services"]["gateway"]["drill"] = {"abort": "RESOURCE_EXHAUSTED", "abort_percent": 100}
    file.write_text(yaml.safe_dump(topology))
    await until(lambda: _answers(http, 429))
    assert (await http.post(PATH, json=QUESTION)).status_code == 429
    assert llm.requests == []
    file.write_text(without)
    await until(lambda: _answers(http, 200))


async def test_a_page_may_call_the_http_api_and_can_read_its_answers_and_refusals(
    start: Start, llm: ScriptedLlm, tmp_path: Path
) -> None:
    tenants = json.dumps({"acme": {"keys": [sha256(b"sesame").hexdigest()]}})
    gateway = await start_http_gateway(start, llm, tenants=tenants)
    endpoint = {"address": gateway.process.spec.address, "http_port": gateway.port}
    settings = {"cors_origins": [ORIGIN], "allow_anonymous": False}
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-stainless-os"}
    async with (
        edge_before(tmp_path, [endpoint], settings) as edge,
        httpx.AsyncClient(base_url=f"http://{edge.address}", timeout=20) as browser,
    ):
        await until(lambda: _admits(browser, "sesame"))
        may = await browser.options(PATH, headers={"origin": ORIGIN, **wants})
        may_not = await browser.options(PATH, headers={"origin": "https://other.example", **wants})
        refused = await browser.post(PATH, json=QUESTION, headers={"origin": ORIGIN})
        answered = await browser.post(PATH, json=QUESTION, headers={"origin": ORIGIN, "x-api-key": "sesame"})
    assert (may.status_code, refused.status_code, answered.status_code) == (200, 401, 200)
    assert {each.headers.get("access-control-allow-origin") for each in (may, refused, answered)} == {ORIGIN}
    assert may.headers["access-control-allow-headers"] == "authorization,*"
    assert {each.headers["access-control-expose-headers"] for each in (refused, answered)} == {"*"}
    assert "access-control-allow-origin" not in may_not.headers


async def _admits(http: httpx.AsyncClient, key: str) -> bool:
    return (await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})).status_code == 200
