"""`hedgerow models served`, by what a gateway lists."""

from __future__ import annotations

import io
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hedgerow_cli import running, scrape
from hedgerow_cli.app import app
from launcher import outages
from launcher.outages import ModelState

PRICES = {"prompt_usd_per_mtok": 0.5, "completion_usd_per_mtok": 1.5}
LISTED = [
    {"id": "gpt", "max_model_len": 128_000, "hedgerow": {"tier": "fast", **PRICES}},
    {"id": "new\x1b[2J"},
    {"id": "bge", "hedgerow": {"serves": ["embeddings", "rerank"], "prompt_usd_per_mtok": 0.02}},
    {"id": "local", "max_model_len": 256, "hedgerow": {"serves": ["embeddings"]}},
]


def served(monkeypatch: pytest.MonkeyPatch, *arguments: str, metrics: bytes = b"<html>hedgerow_limit</html>\n") -> str:
    """The output of the command for a gateway that lists these models."""

    def page(url: str, *_: object) -> io.BytesIO:
        return io.BytesIO(metrics if url.endswith("/metrics") else json.dumps({"data": LISTED}).encode())

    monkeypatch.setattr(scrape, "get", page)
    result = CliRunner().invoke(app, ["models", "served", *(arguments or ("--url", "http://gateway.test"))])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_model_has_its_tier_or_the_apis_that_it_serves_and_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt, bge, local, others = (" ".join(line.split()) for line in served(monkeypatch).splitlines())
    assert gpt == "gpt fast 128,000 tokens $0.5 and $1.5 for a million tokens"
    assert bge == "bge embeddings, rerank context not known $0.02 for a million tokens"
    assert local == "local embeddings 256 tokens"
    assert others == "also by these names: new[2J"


def test_programs_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    models = json.loads(served(monkeypatch, "--url", "http://gateway.test", "--json"))["models"]
    assert models[1] == {
        **{"name": "bge", "tier": None, "context_tokens": None, "prompt_usd_per_mtok": 0.02},
        "serves": ["embeddings", "rerank"],
    }
    assert "serves" not in models[0]


def test_a_model_of_the_mesh_here_that_cannot_be_reached_has_its_url_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def asked(address: str) -> ModelState:
        return {"127.0.0.1:1": ModelState("gpt", "http://provider.test/v1", "connection refused")}[address]

    here = [{"name": "llm-gpt", "address": "127.0.0.1:1"}, {"name": "gateway", "address": "127.0.0.1:2"}]
    monkeypatch.setattr(running, "services", lambda _: here)
    monkeypatch.setattr(outages, "model_state", asked)
    lines = served(monkeypatch, "--state-dir", str(tmp_path)).splitlines()
    assert lines[1] == "  http://provider.test/v1: connection refused"


def test_on_another_host_open_breakers_show_a_failing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = served(monkeypatch, metrics=b'hedgerow_breaker_open{backend="gpt@10.0.0.1:1"} 1.0\n').splitlines()
    assert lines[1] == "  calls fail: the gateway's breaker is open"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"\x00\x00\x18\x04\x00", "no gateway serves HTTP at {url} (no answer in HTTP/1.1: BadStatusLine)"),
        (b"", "no gateway serves HTTP at {url} (no answer in HTTP/1.1: RemoteDisconnected)"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"data": 1}', "{url}/v1/models is no list of models"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"data": [{"name": "m"}]}', "{url}/v1/models is no list of models"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 5_000, "{url}/v1/models is no list of models"),
    ],
    ids=["gRPC", "nothing", "no list", "no ids", "nested deeply"],
)
def test_a_port_of_something_else_is_reported_in_a_line(answer: bytes, problem: str) -> None:
    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        pool.submit(serve)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        result = CliRunner().invoke(app, ["models", "served", "--url", url])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"hedgerow: {problem.format(url=url)}")
