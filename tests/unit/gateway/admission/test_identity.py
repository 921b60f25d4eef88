"""Tenants by key, from settings and from a file that changes."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.gateway.admission.identity import LOCAL, BadTenants, Identity, Tenant
from services.gateway.admission.quota import Allowance
from services.gateway.cache_eligibility.settings import HitSettings
from services.gateway.errors import CredentialsDiffer, KeyUnknown
from services.gateway.settings.guard import GuardSettings
from services.gateway.settings.permissions import PERMISSIONS
from services.gateway.settings.tenants import TenantSettings
from tests.keys import digest
from tests.waiting import until

KEYED = Identity({digest("sesame"): "acme"}, {}, None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tenants' file with one tenant, `acme`, whose key is `sesame`."""
    path = tmp_path / "tenants.yaml"
    write(path, acme={"keys": [digest("sesame")], "premium": True})
    return path


def write(file: Path, **tenants: Any) -> None:
    """As a careful operator does: all at once. JSON is YAML too."""
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(tenants))
    unfinished.replace(file)


def spoil(file: Path, text: str | None) -> None:
    """`text` in its place, or nothing at all."""
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


async def followed(identity: Identity) -> None:
    """What has changed in the file is seen at one look, and read at the next."""
    await identity.look()
    await identity.look()


def test_without_keys_there_is_one_tenant() -> None:
    assert Identity({}, {}, None, anonymous=True).tenant(None) == Tenant(
        LOCAL, False, 1, Allowance(), 0, "", ("*",), PERMISSIONS, warm=True, anonymous=True
    )


@pytest.mark.parametrize("name", [LOCAL, "edge", "default", "*", "../x", "anonymous", "None"])
def test_no_name_gives_a_tenant_a_right(name: str) -> None:
    by_key = Identity({digest("key"): name}, {}, None).tenant("Bearer key")
    by_settings = Identity({}, {name: TenantSettings(keys=[digest("key")])}, None).tenant("Bearer key")
    proven = Identity({}, {}, None, tokens=True).tenant(None, [name])
    for tenant in (by_key, by_settings, proven):
        assert (tenant.name, tenant.anonymous, tenant.warm) == (name, False, False)
        assert (tenant.tools, tenant.provider) == ((), ())
        assert tenant.prefix_salt not in ("", Identity({}, {}, None, tokens=True).tenant(None, ["other"]).prefix_salt)


def test_a_token_does_not_make_its_holder_pass_for_callers_without_one() -> None:
    identity = Identity({}, {}, None, anonymous=True, tokens=True)
    assert identity.tenant(None).anonymous
    with pytest.raises(KeyUnknown, match="local is what callers without a credential are called"):
        identity.tenant(None, [LOCAL])


@pytest.mark.parametrize("name", ["", " acme", "acme\n", "ac\u200bme", "e\u0301clair", "\uff41cme", "a" * 257])
def test_a_name_that_can_be_taken_for_another_is_refused(name: str) -> None:
    with pytest.raises(BadTenants, match="printable characters"):
        Identity({digest("key"): name}, {}, None)
    with pytest.raises(BadTenants, match="printable characters"):
        Identity({digest("key"): "acme"}, {name: TenantSettings()}, None)
    with pytest.raises(KeyUnknown, match="printable characters"):
        Identity({}, {}, None, tokens=True).tenant(None, [name])


def test_the_one_tenant_may_have_settings() -> None:
    assert (
        Identity({}, {LOCAL: TenantSettings(concurrency=3)}, None, anonymous=True)
        .tenant("Bearer x")
        .allowance.concurrency
        == 3
    )


@pytest.mark.parametrize("tenants", [{}, {"acme": TenantSettings(premium=True)}])
def test_without_keys_it_does_not_start_unless_it_may_be_open(tenants: dict[str, TenantSettings]) -> None:
    with pytest.raises(
        BadTenants, match=r"tenants: a key of a tenant .* got none; `allow_anonymous` .* admits every caller"
    ):
        Identity({}, tenants, None)
    assert Identity({}, tenants, None, anonymous=True).tenant(None).name == LOCAL


def test_a_file_without_keys_is_told_by_its_name(file: Path) -> None:
    write(file, acme={"premium": True})
    with pytest.raises(BadTenants, match=r"tenants\.yaml: a key of a tenant"):
        Identity({}, {}, file)


def test_where_tenants_come_with_tokens_nobody_comes_without() -> None:
    identity = Identity({}, {}, None, tokens=True)
    assert identity.tenant(None, ["acme"]).name == "acme"
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            identity.tenant(header)


def test_a_tenant_that_nobody_can_be_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Identity({digest("sesame"): "acme"}, {"beta": TenantSettings()}, None)
    assert "without a key, no caller can be beta" in caplog.text
    caplog.clear()
    Identity({digest("sesame"): "acme"}, {"beta": TenantSettings()}, None, tokens=True)
    assert not caplog.records


def test_a_known_key_names_its_tenant() -> None:
    assert KEYED.tenant("Bearer sesame").name == "acme"
    assert KEYED.tenant("bearer  sesame ").name == "acme"


@pytest.mark.parametrize("header", [None, "", "sesame", "Basic sesame", "Bearer ", "Bearer wrong", "Bearer sesame x"])
def test_anything_else_is_refused(header: str | None) -> None:
    with pytest.raises(KeyUnknown):
        KEYED.tenant(header)


def test_a_tenant_has_what_its_settings_say_however_its_keys_were_given() -> None:
    settings = TenantSettings(
        keys=(digest("second").upper(),),
        premium=True,
        weight=2,
        requests_per_s=3,
        requests_burst=4,
        tokens_per_minute=5,
        concurrency=6,
        max_budget_ms=7,
    )
    identity = Identity({digest("first"): "acme"}, {"acme": settings}, None)
    expected = Tenant("acme", True, 2, Allowance(3, 4, 5, 6), 7)
    assert identity.tenant("Bearer first") == identity.tenant("Bearer second")
    assert replace(identity.tenant("Bearer first"), prefix_salt="") == expected


def test_a_key_of_two_tenants_is_an_error(file: Path) -> None:
    with pytest.raises(BadTenants, match=r"globex.keys: [0-9a-f]{8}… is a key of acme already"):
        Identity({digest("k"): "acme"}, {"globex": TenantSettings(keys=(digest("k").upper(),))}, None)
    with pytest.raises(BadTenants, match="is a key of globex already"):
        Identity({digest("sesame"): "globex"}, {}, file)


def test_a_tenant_that_settings_and_file_both_describe_is_an_error(file: Path) -> None:
    with pytest.raises(BadTenants, match="tenants_file: acme: is in the setting `tenants` already"):
        Identity({}, {"acme": TenantSettings()}, file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme: {weight: -1}", r"tenants_file: acme\.weight: .*greater than 0, got -1"),
        ("acme: {guard: {pattern_ms: 9}}", r"tenants_file: acme\.guard\.pattern_ms: no longer a setting, always 5"),
        ("acme: {wieght: 1}", r"tenants_file: acme\.wieght: Extra inputs"),
        ("acme: {keys: [sesame]}", r"tenants_file: acme\.keys\.0: .*pattern"),
        ("- acme", r"tenants_file: .*tenants\.yaml: .*dictionary"),
        ("", r"tenants_file: .*tenants\.yaml: .*dictionary"),
        ("acme: {", "tenants_file: while parsing"),
        ("acme: 2026-02-30", "tenants_file: day "),
        ("[" * 500, "tenants_file: nested too deeply"),
        ("acme: {premium: !!bool maybe}", r"tenants_file: a value that is none of its tag's \(KeyError\)"),
        ("acme: {premium: !!timestamp soon}", r"tenants_file: a value that is none of its tag's \(AttributeError\)"),
    ],
)
def test_a_bad_file_stops_the_start_and_is_told_by_field_and_problem(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(BadTenants, match=said):
        Identity({}, {}, file)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadTenants, match="No such file"):
        Identity({}, {}, tmp_path / "none.yaml")


async def test_the_file_is_read_again_when_it_has_changed(file: Path) -> None:
    identity = Identity({digest("other"): "globex"}, {}, file)
    assert identity.tenant("Bearer sesame").premium
    write(file, acme={"keys": [digest("new")], "weight": 3})
    await followed(identity)
    assert identity.tenant("Bearer new").weight == 3
    assert identity.tenant("Bearer other").name == "globex"
    with pytest.raises(KeyUnknown):
        identity.tenant("Bearer sesame")  # revoked


async def test_a_file_that_is_still_being_written_is_not_read(file: Path) -> None:
    identity = Identity({}, {}, file)
    write(file)
    await identity.look()
    write(file, acme={"keys": [digest("new")]})
    await identity.look()
    assert identity.tenant("Bearer sesame").name == "acme"
    await identity.look()
    assert identity.tenant("Bearer new").name == "acme"


@pytest.mark.parametrize("text", ["acme: {weight: -1}", "acme: {", "", None])
async def test_a_bad_file_is_told_once_and_changes_nothing(
    file: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity({}, {}, file)
    spoil(file, text)
    for _ in range(3):
        await followed(identity)
    assert identity.tenant("Bearer sesame").name == "acme"
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert "tenants_file: " in told[0].message
    write(file, acme={"keys": [digest("new")]})
    await followed(identity)
    assert identity.tenant("Bearer new").name == "acme"


async def test_taking_the_last_key_away_opens_nothing(file: Path) -> None:
    identity = Identity({}, {}, file)
    write(file, acme={"premium": True})
    await followed(identity)
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            identity.tenant(header)


async def test_the_first_key_closes_an_open_gateway(file: Path) -> None:
    write(file, local={"concurrency": 2})
    identity = Identity({}, {}, file, anonymous=True)
    assert identity.tenant(None).allowance.concurrency == 2
    write(file, local={"concurrency": 3})
    await followed(identity)
    assert identity.tenant(None).allowance.concurrency == 3
    write(file, acme={"keys": [digest("sesame")]})
    await followed(identity)
    with pytest.raises(KeyUnknown):
        identity.tenant(None)


async def test_the_file_is_followed_while_it_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.admission.identity._POLL_S", 0.001)
    identity = Identity({}, {}, file)
    running = asyncio.create_task(identity.run())
    write(file, acme={"keys": [digest("new")]})
    await until(lambda: knows(identity, "new"))
    running.cancel()
    await asyncio.wait([running])


async def test_without_a_file_there_is_nothing_to_follow() -> None:
    await KEYED.run()
    assert knows(KEYED, "sesame")


def knows(identity: Identity, key: str) -> bool:
    try:
        identity.tenant(f"Bearer {key}")
    except KeyUnknown:
        return False
    return True


def test_a_name_that_the_edge_proved_is_the_tenant_with_its_settings() -> None:
    known = Identity({digest("sesame"): "acme"}, {"beta": TenantSettings(premium=True, concurrency=3)}, None)
    beta = known.tenant(None, ["beta"])
    assert (beta.name, beta.premium, beta.allowance.concurrency) == ("beta", True, 3)
    assert replace(known.tenant(None, ["gamma"]), prefix_salt="") == Tenant("gamma", False, 1, Allowance(), 0)


def test_a_proven_name_counts_in_an_open_gateway_too() -> None:
    assert Identity({}, {}, None, anonymous=True).tenant(None, ["beta"]).name == "beta"


def test_a_token_beside_a_proven_name_is_the_one_that_the_edge_checked() -> None:
    assert KEYED.tenant("Bearer eyJhbGciOi", ["beta"]).name == "beta"


def test_a_key_beside_a_proven_name_must_be_of_the_same_tenant() -> None:
    assert KEYED.tenant("Bearer sesame", ["acme"]).name == "acme"
    with pytest.raises(CredentialsDiffer):
        KEYED.tenant("Bearer sesame", ["beta"])


@pytest.mark.parametrize("proven", [["a", "b"], [""], ["x" * 257], [b"\xff"]])
def test_what_is_not_one_name_proves_nothing(proven: list[str | bytes]) -> None:
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            KEYED.tenant(header, proven)


async def test_a_proven_tenant_has_what_the_file_says_now(file: Path) -> None:
    identity = Identity({}, {}, file)
    write(file, beta={"keys": [digest("b")], "premium": True})
    await followed(identity)
    assert identity.tenant(None, ["beta"]).premium
    assert not identity.tenant(None, ["acme"]).premium


def test_tenants_share_what_models_have_read_only_where_the_operator_says_so():
    settings = {
        "b": TenantSettings(prefix_group="docs"),
        "c": TenantSettings(prefix_group="docs"),
        "docs": TenantSettings(),
    }
    keys = {digest(name): name for name in ("a", "b", "c", "docs")}
    a, b, c, docs = (
        Identity(keys, settings, None).tenant(f"Bearer {name}").prefix_salt for name in ("a", "b", "c", "docs")
    )
    assert b == c
    assert len({a, b, docs}) == 3  # also where one's name is the others' group
    assert all(a)
    assert Identity(keys, settings, None).tenant("Bearer a").prefix_salt == a  # in every gateway, and after a restart


def test_the_one_tenant_of_a_gateway_without_keys_shares_with_whoever_has_no_salt():
    assert Identity({}, {}, None, anonymous=True).tenant(None).prefix_salt == ""


def test_a_tenant_has_the_gateways_guard_but_for_what_its_own_says(tmp_path: Path) -> None:
    ours = GuardSettings(personal="mask", late="open")
    own = TenantSettings(keys=(digest("own"),), guard=GuardSettings(personal="off", secrets="refuse"))
    identity = Identity({digest("k"): "acme"}, {"own": own}, None, guard=ours)
    assert identity.tenant("Bearer k").guard == ours
    assert identity.tenant("Bearer own").guard == GuardSettings(personal="off", secrets="refuse", late="open")


def test_a_tenant_has_the_gateways_hits_but_for_what_its_own_say() -> None:
    own = TenantSettings(keys=(digest("own"),), hits=HitSettings(personal="any"))
    identity = Identity({digest("k"): "acme"}, {"own": own}, None, hits=HitSettings(sampled="exact", personal="exact"))
    assert identity.tenant("Bearer k").hits == HitSettings(sampled="exact", personal="exact")
    assert identity.tenant("Bearer own").hits == HitSettings(sampled="exact", personal="any")


def test_a_guard_of_the_file_that_is_none_is_refused_by_its_field(tmp_path: Path) -> None:
    (file := tmp_path / "tenants.yaml").write_text(f"a: {{keys: [{digest('k')}], guard: {{denied_patterns: ['a*']}}}}")
    with pytest.raises(BadTenants, match=r"a\.guard\.denied_patterns: .*a match of 1 to 200 characters"):
        Identity({}, {}, file)
