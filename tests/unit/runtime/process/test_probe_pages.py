"""`/readyz` and `/livez`, as a probe sees them, and which callers read these pages and the metrics."""

from __future__ import annotations

import asyncio
import threading
from wsgiref.util import setup_testing_defaults

import pytest
from grpc_health.v1 import health_pb2

from services.runtime.process.health import Health
from services.runtime.process.metrics import ProbePages, app

SERVING = health_pb2.HealthCheckResponse.SERVING


def get(pages: ProbePages, path: str, host: str = "10.1.2.3:9464", *, loopback: bool = False) -> tuple[str, bytes]:
    environ = {"HTTP_HOST": host, "PATH_INFO": path}
    setup_testing_defaults(environ)
    status_line = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        status_line.append(status)

    body = b"".join(app(pages, loopback=loopback)(environ, start_response))  # type: ignore[arg-type]
    return status_line[0], body


async def test_a_process_is_ready_by_its_health_and_always_live() -> None:
    health = Health()
    pages = ProbePages(health, asyncio.get_running_loop())
    for change, ready in (
        (lambda: None, "503 Service Unavailable"),
        (lambda: health.set("", SERVING), "200 OK"),
        (health.leave, "503 Service Unavailable"),
    ):
        change()
        assert (await asyncio.to_thread(get, pages, "/readyz"))[0] == ready
        assert await asyncio.to_thread(get, pages, "/livez") == ("200 OK", b"live\n")


async def test_a_loop_that_is_stuck_is_neither_ready_nor_live() -> None:
    health, answers, asked = Health(), [], threading.Event()
    health.set("", SERVING)
    pages = ProbePages(health, asyncio.get_running_loop(), loop_s=0.01)

    def ask() -> None:
        answers.extend(get(pages, path) for path in ("/readyz", "/livez"))
        asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(10)  # on the loop itself: it is stuck until both are answered
    thread.join()
    assert answers == [("503 Service Unavailable", b"the event loop did not answer\n")] * 2


def test_a_loop_that_has_ended_is_not_live() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert get(ProbePages(Health(), loop), "/livez")[0] == "503 Service Unavailable"


@pytest.mark.parametrize(("path", "content"), [("/livez", b"live"), ("/metrics", b"python_info")])
@pytest.mark.parametrize(
    ("host", "loopback", "status"),
    [
        ("localhost:9100", True, "200 OK"),
        ("127.0.0.1:9100", True, "200 OK"),
        ("evil.example:9100", True, "403 Forbidden"),
        ("gateway:9100", False, "200 OK"),
    ],
)
async def test_on_loopback_other_host_names_are_refused(
    path: str, content: bytes, host: str, loopback: bool, status: str
) -> None:
    pages = ProbePages(Health(), asyncio.get_running_loop())
    status_line, body = await asyncio.to_thread(get, pages, path, host, loopback=loopback)
    assert (status_line, content in body) == (status, status == "200 OK")
