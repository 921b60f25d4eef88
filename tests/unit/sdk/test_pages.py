"""Pages that commands ask for: credentials go to their address alone."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from hedgerow._pages import ask


class _Server(ThreadingHTTPServer):
    def __init__(self, redirect_to: str = "") -> None:
        self.redirect_to, self.asked = redirect_to, list[str]()
        super().__init__(("127.0.0.1", 0), _Page)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append(self.path)
        self.send_response(302 if server.redirect_to else 200)
        self.send_header("location", server.redirect_to)
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, format: str, *args: object) -> None:
        pass


def serving(server: _Server) -> Iterator[_Server]:
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with server:
        yield server
        server.shutdown()
    thread.join()


@pytest.fixture
def other() -> Iterator[_Server]:
    yield from serving(_Server())


@pytest.fixture
def redirecting(other: _Server) -> Iterator[_Server]:
    yield from serving(_Server(f"{other.url}/elsewhere"))


def test_a_redirect_is_an_error_and_the_credential_goes_nowhere_else(redirecting: _Server, other: _Server) -> None:
    with pytest.raises(HTTPError, match="302") as refused:
        ask(Request(f"{redirecting.url}/models", headers={"authorization": "Bearer secret"}), 5)
    refused.value.close()
    assert (redirecting.asked, other.asked) == (["/models"], [])


def test_no_proxy_gets_a_request_to_this_machine(other: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with ask(Request(f"{other.url}/ready"), 5) as page:
        assert page.read() == b"page"
    assert other.asked == ["/ready"]
