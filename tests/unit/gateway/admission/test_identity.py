"""Tenants by key, from settings and from a file that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.gateway.admission.api_keys import BadTenants
from services.gateway.admission.identity import LOCAL, Identity, Tenant
from services.gateway.admission.quota import Allowance
from services.gateway.cache_eligibility.settings import HitSettings
from services.gateway.errors import CredentialsDiffer, KeyUnknown
from services.gateway.settings.guard import GuardSettings
from services.gateway.settings.permissions import PERMISSIONS
from services.gateway.settings.tenants import TenantSettings
from tests.keys import digest, keyed

KEYED = Identity({"acme": keyed("sesame")}, None)


def test_without_keys_there_is_one_tenant() -> None:
    assert Identity({}, None, anonymous=True).tenant(None) == Tenant(
        LOCAL, tools=("*",), provider=PERMISSIONS, warm=True, anonymous=True
    )


@pytest.mark.parametrize("name", [LOCAL, "edge", "default", "*", "../x", "anonymous", "None"])
def test_no_name_gives_a_tenant_a_right(name: str) -> None:
    by_key = Identity({name: keyed("key")}, None).tenant("Bearer key")
    proven = Identity({}, None, tokens=True).tenant(None, [name])
    for tenant in (by_key, proven):
        assert (tenant.name, tenant.anonymous, tenant.warm) == (name, False, False)
        assert (tenant.tools, tenant.provider) == ((), ())
        assert tenant.prefix_salt not in ("", Identity({}, None, tokens=True).tenant(None, ["other"]).prefix_salt)


def test_a_token_does_not_make_its_holder_pass_for_callers_without_one() -> None:
    identity = Identity({}, None, anonymous=True, tokens=True)
    assert identity.tenant(None).anonymous
    with pytest.raises(KeyUnknown, match="local is what callers without a credential are called"):
        identity.tenant(None, [LOCAL])


@pytest.mark.parametrize("name", ["", " acme", "acme\n", "ac\u200bme", "e\u0301clair", "\uff41cme", "a" * 257])
def test_a_name_that_can_be_taken_for_another_is_refused(name: str) -> None:
    with pytest.raises(BadTenants, match="printable characters"):
        Identity({name: keyed("key")}, None)
    with pytest.raises(BadTenants, match="printable characters"):
        Identity({"acme": keyed("key"), name: TenantSettings()}, None)
    with pytest.raises(KeyUnknown, match="printable characters"):
        Identity({}, None, tokens=True).tenant(None, [name])


@pytest.mark.parametrize("tenants", [{}, {"acme": TenantSettings(premium=True)}])
def test_without_keys_it_does_not_start_unless_it_may_be_open(tenants: dict[str, TenantSettings]) -> None:
    with pytest.raises(
        BadTenants, match=r"tenants: a key of a tenant .* got none; `allow_anonymous` .* admits every caller"
    ):
        Identity(tenants, None)
    assert Identity(tenants, None, anonymous=True).tenant(None).name == LOCAL


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "an API key is required"),
        ("", "required, as"),
        ("Bearer wrong", "does not know"),
        *[(each, "authorization: ") for each in ("sesame", "Basic sesame", "Bearer ", "Bearer sesame x")],
    ],
)
def test_a_missing_key_and_an_unknown_one_are_refused_in_words_of_their_own(header: str | None, message: str) -> None:
    with pytest.raises(KeyUnknown, match=message):
        KEYED.tenant(header)


def test_where_tenants_have_tokens_a_call_without_one_is_refused() -> None:
    identity = Identity({}, None, tokens=True)
    assert identity.tenant(None, ["acme"]).name == "acme"
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            identity.tenant(header)


def test_a_tenant_without_a_key_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    Identity({"acme": keyed("sesame"), "beta": TenantSettings()}, None)
    assert "without a key, no caller can be beta" in caplog.text
    caplog.clear()
    Identity({"acme": keyed("sesame"), "beta": TenantSettings()}, None, tokens=True)
    assert not caplog.records


def test_a_known_key_names_its_tenant() -> None:
    assert KEYED.tenant("Bearer sesame").name == "acme"
    assert KEYED.tenant("bearer  sesame ").name == "acme"


def test_a_tenant_has_what_its_settings_say_by_each_of_its_keys() -> None:
    settings = TenantSettings(
        keys=(digest("first"), digest("second").upper()),
        premium=True,
        weight=2,
        requests_per_s=3,
        requests_burst=4,
        tokens_per_minute=5,
        concurrency=6,
        max_budget_ms=7,
    )
    identity = Identity({"acme": settings}, None)
    expected = Tenant("acme", premium=True, weight=2, allowance=Allowance(3, 4, 5, 6), max_budget_ms=7)
    assert identity.tenant("Bearer first") == identity.tenant("Bearer second")
    assert replace(identity.tenant("Bearer first"), prefix_salt="") == expected


def test_a_key_of_two_tenants_is_an_error() -> None:
    with pytest.raises(BadTenants, match=r"globex.keys: [0-9a-f]{8}… is a key of acme already"):
        Identity({"acme": keyed("k"), "globex": TenantSettings(keys=(digest("k").upper(),))}, None)


def test_a_name_that_the_edge_proved_is_the_tenant_with_its_settings() -> None:
    known = Identity({"acme": keyed("sesame"), "beta": TenantSettings(premium=True, concurrency=3)}, None)
    beta = known.tenant(None, ["beta"])
    assert (beta.name, beta.premium, beta.allowance.concurrency) == ("beta", True, 3)
    assert replace(known.tenant(None, ["gamma"]), prefix_salt="") == Tenant("gamma")
    assert Identity({}, None, anonymous=True).tenant(None, ["beta"]).name == "beta"
    assert KEYED.tenant("Bearer eyJhbGciOi", ["beta"]).name == "beta", "the edge has verified the bearer token"


def test_a_key_beside_a_proven_name_must_be_of_the_same_tenant() -> None:
    assert KEYED.tenant("Bearer sesame", ["acme"]).name == "acme"
    with pytest.raises(CredentialsDiffer):
        KEYED.tenant("Bearer sesame", ["beta"])


@pytest.mark.parametrize("proven", [["a", "b"], [""], ["x" * 257], [b"\xff"]])
def test_a_proven_identity_must_be_one_valid_name(proven: list[str | bytes]) -> None:
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            KEYED.tenant(header, proven)


def test_tenants_share_a_prefix_salt_only_in_a_configured_group():
    groups = {"a": "", "b": "docs", "c": "docs", "docs": ""}
    settings = {name: TenantSettings(keys=(digest(name),), prefix_group=group) for name, group in groups.items()}
    a, b, c, docs = (Identity(settings, None).tenant(f"Bearer {name}").prefix_salt for name in groups)
    assert b == c
    assert len({a, b, docs}) == 3  # also where one's name is the others' group
    assert all(a)
    assert Identity(settings, None).tenant("Bearer a").prefix_salt == a  # in every gateway, and after a restart


def test_a_tenant_has_the_gateways_guard_and_hits_but_for_what_its_own_say() -> None:
    guard, hits = GuardSettings(personal="mask", late="open"), HitSettings(sampled="exact", personal="exact")
    own = TenantSettings(
        keys=(digest("own"),), guard=GuardSettings(personal="off", secrets="refuse"), hits=HitSettings(personal="any")
    )
    identity = Identity({"acme": keyed("k"), "own": own}, None, guard=guard, hits=hits)
    acme, other = identity.tenant("Bearer k"), identity.tenant("Bearer own")
    assert (acme.guard, acme.hits) == (guard, hits)
    assert other.guard == GuardSettings(personal="off", secrets="refuse", late="open")
    assert other.hits == HitSettings(sampled="exact", personal="any")
