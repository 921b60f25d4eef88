"""Tokens at the entrance to the mesh: which ones Envoy takes, and the topologies that are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication

from services.control import topology_file
from services.control.edge import resources
from services.control.topology import BadTopology, read
from tests.unit.control.edges import connections, routes, topology, unpacked

KEYS = {"keys": [{"kty": "RSA", "kid": "1", "n": "AQAB", "e": "AQAB"}]}


def filters(**edge: Any) -> list[str]:
    return [found.name.rpartition(".")[2] for found in connections(**edge).http_filters]


@pytest.fixture
def jwt(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "jwks.json").write_text(json.dumps(KEYS))
    return {"issuer": "https://issuer.example", "audiences": ["a"], "jwks_file": str(tmp_path / "jwks.json")}


def test_equal_topologies_give_equal_bytes(jwt: dict[str, Any]) -> None:
    edge = {"jwt": jwt, "cors_origins": ["*"], "tls": True, "otlp_endpoint": "collector:4317"}
    first, again = (
        [message.SerializeToString(deterministic=True) for message in resources(topology(**edge))] for _ in range(2)
    )
    assert first == again


def test_refusals_come_after_what_makes_them_readable(jwt: dict[str, Any]) -> None:
    assert filters() == ["header_to_metadata", "health_check", "cors", "grpc_web", "buffer", "fault", "router"]
    assert filters(jwt=jwt) == [*filters()[:-3], "jwt_authn", "rbac", "buffer", "fault", "router"]


def test_tokens_are_checked_with_the_keys_of_the_file_and_name_the_tenant(jwt: dict[str, Any]) -> None:
    found = unpacked(connections(jwt=jwt).http_filters[4].typed_config, JwtAuthentication())
    provider = found.providers["edge"]
    assert json.loads(provider.local_jwks.inline_string) == KEYS
    assert (provider.issuer, list(provider.audiences)) == ("https://issuer.example", ["a"])
    assert provider.require_expiration
    assert not provider.forward
    assert [(one.header_name, one.claim_name) for one in provider.claim_to_headers] == [
        ("x-hedgerow-tenant", "tenant"),
        ("x-hedgerow-expires", "exp"),
    ]
    assert [(rule.match.prefix, rule.requires.provider_name) for rule in found.rules] == [
        ("/grpc.health.v1.Health/", ""),
        ("/", "edge"),
    ]


@pytest.mark.parametrize(("origins", "exempt"), [((), False), (("https://a",), True)])
def test_only_where_pages_may_call_their_preflights_need_no_token(
    jwt: dict[str, Any], origins: tuple[str, ...], exempt: bool
) -> None:
    found = connections(jwt=jwt, cors_origins=origins).http_filters[4]
    assert unpacked(found.typed_config, JwtAuthentication()).bypass_cors_preflight is exempt


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": []}', '{"keys": "a"}', '{"keys": [1]}', "[" * 5_000, '{"keys"', None]
)
def test_a_file_without_keys_is_refused_by_its_field(jwt: dict[str, Any], tmp_path: Path, text: str | None) -> None:
    (tmp_path / "jwks.json").unlink() if text is None else (tmp_path / "jwks.json").write_text(text)
    with pytest.raises(BadTopology, match=r"jwks_file: .*(required|FileNotFoundError)"):
        read(written(tmp_path, jwt=jwt))


async def test_a_key_file_that_was_bad_for_a_while_is_followed_again(
    jwt: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def moments(*_: object) -> AsyncIterator[None]:
        for text in ("{}", "{}", "{}", json.dumps(KEYS)):
            (tmp_path / "jwks.json").write_text(text)
            yield

    monkeypatch.setattr(topology_file, "_moments", moments)
    found = [each async for each in topology_file.follow(written(tmp_path, jwt=jwt), Path(), 0)]
    assert [isinstance(each, BadTopology) for each in found] == [False, True, False]


def test_other_keys_make_another_topology(jwt: dict[str, Any], tmp_path: Path) -> None:
    before = topology(jwt=jwt)
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**KEYS["keys"][0], "kid": "2"}]}))
    assert topology(jwt=jwt) != before


def test_a_name_to_listen_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match=r"edge\.address: .*'localhost'"):
        read(written(tmp_path, address="localhost:8443"))


def written(folder: Path, **edge: Any) -> Path:
    """A topology's file."""
    services = {"gateway": {"endpoints": [{"address": "10.0.0.1:50050"}]}}
    file = folder / "topology.yaml"
    file.write_text(json.dumps({"services": services, "edge": {"address": "0.0.0.0:8443", **edge}}))
    return file


def test_a_call_without_a_token_is_refused_by_the_filter_that_checks_them(jwt: dict[str, Any]) -> None:
    found = routes(jwt=jwt).virtual_hosts[0].routes
    assert not any(route.direct_response.status for route in found)
    assert not any(header.name == "authorization" for route in found for header in route.match.headers)


def test_tokens_and_anonymous_callers_exclude_each_other(jwt: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match=r"edge: allow_anonymous: false with `jwt`"):
        read(written(tmp_path, jwt=jwt, allow_anonymous=True))


def test_tokens_without_an_audience_are_refused_by_their_field(jwt: dict[str, Any], tmp_path: Path) -> None:
    for audiences in ([], [""], None):
        settings = {name: value for name, value in {**jwt, "audiences": audiences}.items() if value is not None}
        with pytest.raises(BadTopology, match=r"topology: edge\.jwt\.audiences"):
            read(written(tmp_path, jwt=settings))
