"""An API key in plain text stays on its machine."""

from __future__ import annotations

import re
import socket
from urllib.error import URLError

import pytest

import hedgerow
from hedgerow import InvalidArgument, Tls, Unavailable
from hedgerow._peer import stays_here
from hedgerow_cli.scrape import get

CLIENTS = ["Client", "AsyncClient", "VisionClient", "AsyncVisionClient", "AudioClient", "AsyncAudioClient"]


HERE = """
    127.0.0.1:50050 127.9.8.7:1 127.0.0.1 [::1]:50050 [::ffff:127.0.0.1]:50050 ::1 localhost:50050 LocalHost.:50050
    localhost unix:gateway.sock unix:///run/gateway.sock unix-abstract:gateway dns:///localhost:50050
    dns:127.0.0.1:50050 ipv4:127.0.0.1:50050,127.0.0.2:50050 ipv6:[::1]:50050
"""
ELSEWHERE = """
    gw.example:50050 10.0.0.1:50050 0.0.0.0:50050 [fe80::1]:50050 localhost.example:50050 127.0.0.1.example:50050
    127.0.0.1,10.0.0.1:50050 dns:///gw.example:50050 dns://10.0.0.1/localhost:50050
    ipv4:127.0.0.1:50050,10.0.0.1:50050 ipv6:[::1]:50050,[2001:db8::1]:50050 xds:///gateway xds://authority/localhost
    vsock:2:50050 http://localhost:50050 unixes:50050
"""


@pytest.mark.parametrize("target", HERE.split())
def test_these_targets_are_on_this_machine(target: str) -> None:
    assert stays_here(target)


@pytest.mark.parametrize("target", [*ELSEWHERE.split(), ""])
def test_these_targets_may_be_another_machine(target: str) -> None:
    assert not stays_here(target)


def test_no_proxy_of_the_environment_gets_a_call_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with hedgerow.Client("127.0.0.1:1", api_key="sesame") as client, pytest.raises(Unavailable):
            client.tools()
        with pytest.raises(URLError):
            get("http://127.0.0.1:1/v1/models", "sesame", timeout_s=5)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("target", ["gw.example:50050", "xds:///gateway"])
def test_a_key_in_plain_text_to_another_machine_is_refused_and_the_error_names_the_option(
    client: str, target: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(target)) as refused:
        getattr(hedgerow, client)(target, api_key="sesame")
    assert refused.value.reason == "PLAINTEXT_KEY"
    assert refused.value.metadata["field"] == "tls"
    assert "allow_plaintext_key=True" in refused.value.message
    assert "sesame" not in refused.value.message


@pytest.mark.parametrize("client", CLIENTS)
async def test_over_tls_without_a_key_on_this_machine_or_on_purpose_it_is_not(client: str) -> None:
    make = getattr(hedgerow, client)
    for target, given in (
        ("gw.example:50050", {"api_key": "sesame", "tls": Tls()}),
        ("gw.example:50050", {}),
        ("gw.example:50050", {"api_key": ""}),
        ("127.0.0.1:50050", {"api_key": "sesame"}),
        ("gw.example:50050", {"api_key": "sesame", "allow_plaintext_key": True}),
    ):
        made = make(target, **given)
        if not client.startswith("Async"):
            made.close()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("key", ["sesame\n", "s\u00e9same", "ses\x00ame"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(client: str, key: str) -> None:
    with pytest.raises(InvalidArgument, match="api_key: printable ASCII characters") as refused:
        getattr(hedgerow, client)("127.0.0.1:50050", api_key=key)
    assert refused.value.metadata["field"] == "api_key"
    assert "same" not in refused.value.message
