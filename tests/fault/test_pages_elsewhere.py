"""Pages elsewhere that have their reader's browser call a gateway on loopback without keys, also by DNS rebinding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack

import httpx
import pytest

from launcher.processes import free_port
from tests.fault.asking import MODEL, asking
from tests.fault.beside import asking_beside, check, honest_before
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.report import Report

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
_EVIL, _GOOD = "https://evil.example", "https://good.example"
_ROUTES = (
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", f"/v1/models/{MODEL}"),
    ("GET", "/v1/cache/stats"),
    ("DELETE", "/v1/cache"),
    ("DELETE", "/v1/cache/0"),
    ("POST", "/v1/cache/wrong"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/audio/transcriptions"),
    ("GET", "/no/such/route"),
)
_KINDS = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
_BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Evil?"}]}).encode()
_FORBIDDEN = 403


def _pages(here: str) -> Mapping[str, Mapping[str, str]]:
    """Headers that a browser sends for pages elsewhere. `here`: the gateway's host and port."""
    port = here.rpartition(":")[2]
    return {
        "another origin": {"origin": _EVIL},
        "another port": {"origin": "http://127.0.0.1:1"},
        "a file": {"origin": "null"},
        "no cors": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        "a sibling": {"sec-fetch-site": "same-site"},
        "rebound": {"host": f"evil.example:{port}", "sec-fetch-site": "same-origin"},
        "rebound, with its origin": {"host": f"evil.example:{port}", "origin": f"http://evil.example:{port}"},
        "rebound, like an address": {"host": f"127.0.0.1.evil.example:{port}"},
        "rebound, with a dot": {"host": f"localhost.:{port}.evil.example"},
    }


async def test_pages_elsewhere_get_nothing_of_a_gateway_without_keys(
    starter: Processes, llm: FaultyLlm, report: Report, full_size: bool
):
    here, metrics, of_cache = (f"127.0.0.1:{free_port()}" for _ in range(3))
    times = 5 if full_size else 1
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        cache = await starter.start("cache", metrics_address=of_cache)
        gateway = await starter.gateway(
            llm.address,
            cache_address=cache.spec.address,
            http_address=here,
            metrics_address=metrics,
            http={"cors_origins": [_GOOD]},
        )
        caller = await enter(asking(gateway.spec.address))
        page, *ports = [
            await enter(httpx.AsyncClient(base_url=f"http://{each}", timeout=30)) for each in (here, metrics, of_cache)
        ]
        before = await honest_before(caller)
        with report.case(49, "pages on other origins, at every route of a gateway on loopback without keys") as row:
            async with asking_beside(caller) as during:
                for _ in range(times):
                    for name, headers in _pages(here).items():
                        for method, path in _ROUTES:
                            statuses = [await _ask(page, method, path, headers, kind) for kind in _KINDS]
                            row.tally(failed=len(statuses))
                            assert set(statuses) == {_FORBIDDEN}, (name, path, statuses)
            check(row, before, during)
            assert not any("Evil" in attempt.question for attempt in llm.attempts)
        with report.case(49, "a page by DNS rebinding, at the metrics of each process") as row:
            rebound = [headers for headers in _pages(here).values() if "host" in headers]
            for port in ports:
                statuses = [(await port.get("/metrics", headers=headers)).status_code for headers in rebound]
                row.tally(failed=len(statuses))
                assert set(statuses) == {_FORBIDDEN}
                scraped = await port.get("/metrics")
                row.tally(ok=1)
                assert (scraped.status_code, "hedgerow_" in scraped.text) == (200, True)
                assert "access-control-allow-origin" not in scraped.headers  # so no page can read it
        with report.case(
            49, "a preflight of a page elsewhere; the operator's own page, and callers that are no page"
        ) as row:
            asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
            evil = await page.options("/v1/chat/completions", headers={"origin": _EVIL, **asks})
            good = await page.options("/v1/chat/completions", headers={"origin": _GOOD, **asks})
            assert (evil.status_code, good.status_code) == (400, 200)
            assert "access-control-allow-origin" not in evil.headers
            row.tally(ok=1, failed=1)
            for headers in ({}, {"origin": _GOOD}, {"origin": f"http://{here}"}, {"host": "localhost"}):
                assert await _ask(page, "POST", "/v1/chat/completions", headers, _KINDS[0]) == 200, headers
                row.tally(ok=1)


async def _ask(page: httpx.AsyncClient, method: str, path: str, headers: Mapping[str, str], kind: str) -> int:
    body = _BODY if method == "POST" else None
    own = {"content-type": kind} if body else {}
    return (await page.request(method, path, headers={**own, **headers}, content=body)).status_code
