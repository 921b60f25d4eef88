"""What a process's metrics are given to."""

from __future__ import annotations

import asyncio
from wsgiref.util import setup_testing_defaults

import pytest

from services.runtime.process.health import Health
from services.runtime.process.metrics import app
from services.runtime.process.probe_pages import ProbePages


@pytest.mark.parametrize(
    ("host", "loopback", "status"),
    [
        ("localhost:9100", True, "200 OK"),
        ("127.0.0.1:9100", True, "200 OK"),
        ("evil.example:9100", True, "403 Forbidden"),
        ("gateway:9100", False, "200 OK"),
    ],
)
async def test_on_loopback_no_page_whose_name_was_pointed_here_reads_metrics(host: str, loopback: bool, status: str):
    environ = {"HTTP_HOST": host}
    setup_testing_defaults(environ)
    told = []
    pages = ProbePages(Health(), asyncio.get_running_loop())

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        told.append(status)

    body = b"".join(app(pages, loopback=loopback)(environ, start_response))  # type: ignore[arg-type]
    assert told == [status]
    assert (b"python_info" in body) is (status == "200 OK")
