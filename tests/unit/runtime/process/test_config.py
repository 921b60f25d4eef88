"""Plaintext is limited to loopback, unless a setting allows more."""

from __future__ import annotations

import pytest

from hedgerow import Client, InvalidArgument
from hedgerow.channel import PING_TIMEOUT_VARIABLE, channel_options
from services.runtime.process.config import ServiceSettings, is_loopback, load
from services.runtime.process.server import server_options

HERE = ("127.0.0.1:1", "127.8.9.1:0", "[::1]:1", "localhost:1", "unix:/run/hedgerow.sock", "unix:hedgerow")
ELSEWHERE = ("0.0.0.0:1", "[::]:1", ":1", "10.0.0.1:1", "[fe80::1]:1", "localhost.example:1", "gateway:1", "")


@pytest.mark.parametrize("address", [*HERE, *ELSEWHERE])
def test_an_address_is_of_this_machine_alone_or_may_be_reached_from_elsewhere(address: str) -> None:
    assert is_loopback(address) == (address in HERE)


def start(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ServiceSettings:
    for name in ("ADDRESS", "TLS_DIR", "PLAINTEXT"):
        monkeypatch.delenv(name, raising=False)
    return load(ServiceSettings, arguments, prog="service")


def test_plain_text_beyond_loopback_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        start(monkeypatch, "--address", "0.0.0.0:50052")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("service: plaintext: ")
    assert "a `tls_dir`, or true, to serve beyond loopback, at 0.0.0.0:50052, got False" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("--address", "127.0.0.1:50052"),
        ("--address", "0.0.0.0:50052", "--tls-dir", "/tls"),
        ("--address", "0.0.0.0:50052", "--plaintext", "true"),
    ],
)
def test_on_loopback_with_certificates_or_on_purpose_it_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert start(monkeypatch, *arguments).address == arguments[1]


@pytest.mark.parametrize("option", ["--address", "--metrics-address"])
@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1", "h:٣"])
def test_an_address_without_a_port_that_there_is_ends_the_start_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, address: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        start(monkeypatch, option, address)
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    name = option.removeprefix("--").replace("-", "_")
    assert said.startswith(f"service: {name}: ")
    assert said.endswith(f"host:port, with a port from 0 to 65535, got {address!r}")


def test_the_address_of_grpc_may_be_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(monkeypatch, "--address", "unix:/run/hedgerow.sock").address == "unix:/run/hedgerow.sock"


@pytest.mark.parametrize("value", ["0", "99", "60001", "soon", "-1", "1.5"])
def test_a_ping_timeout_beyond_its_limits_ends_the_start_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    monkeypatch.setenv(PING_TIMEOUT_VARIABLE, value)
    with pytest.raises(SystemExit) as ended:
        start(monkeypatch, "--address", "127.0.0.1:50052")
    assert ended.value.code == 2
    assert f"{PING_TIMEOUT_VARIABLE}: a whole number of milliseconds from 100 to 60000, got {value}\n" in (
        capsys.readouterr().err
    )
    with pytest.raises(InvalidArgument, match=f"^{PING_TIMEOUT_VARIABLE}: .* got {value}$"):
        Client()


@pytest.mark.parametrize(
    ("value", "channel_ms", "server_ms"), [("", 900, 2_000), ("100", 100, 2_000), ("5000", 5_000, 5_000)]
)
def test_channels_and_servers_wait_for_the_answer_to_a_ping_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, value: str, channel_ms: int, server_ms: int
) -> None:
    monkeypatch.setenv(PING_TIMEOUT_VARIABLE, value)
    settings = start(monkeypatch, "--address", "127.0.0.1:50052")
    for options, expected_ms in ((channel_options("a:1"), channel_ms), (server_options(settings), server_ms)):
        waits = {name: limit for name, limit in options if name.endswith("_timeout_ms")}
        assert waits == {"grpc.keepalive_timeout_ms": expected_ms, "grpc.http2.ping_timeout_ms": expected_ms}


@pytest.mark.parametrize(("ping_ms", "connect_ms"), [("", 1_000), ("100", 1_000), ("5000", 5_000)])
def test_an_attempt_to_connect_waits_for_a_silent_peer_as_long_as_a_ping_does(
    monkeypatch: pytest.MonkeyPatch, ping_ms: str, connect_ms: int
) -> None:
    monkeypatch.setenv(PING_TIMEOUT_VARIABLE, ping_ms)
    assert dict(channel_options("a:1"))["grpc.min_reconnect_backoff_ms"] == connect_ms
