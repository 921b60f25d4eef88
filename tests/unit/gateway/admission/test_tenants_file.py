"""Tenants of a file that changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from services.gateway.admission.api_keys import BadTenants
from services.gateway.admission.identity import Identity
from services.gateway.errors import KeyUnknown
from services.gateway.settings.tenants import TenantSettings
from tests.keys import digest, keyed
from tests.unit.gateway.admission.tenants_file import followed, write
from tests.waiting import until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tenants' file with one tenant, `acme`, whose key is `sesame`."""
    path = tmp_path / "tenants.yaml"
    write(path, acme={"keys": [digest("sesame")], "premium": True})
    return path


def spoil(file: Path, text: str | None) -> None:
    """`text` in its place, or nothing at all."""
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


def test_a_file_without_keys_is_reported_by_its_name(file: Path) -> None:
    write(file, acme={"premium": True})
    with pytest.raises(BadTenants, match=r"tenants\.yaml: a key of a tenant"):
        Identity({}, file)


def test_a_key_or_a_tenant_that_settings_and_file_both_have_is_an_error(file: Path) -> None:
    with pytest.raises(BadTenants, match="is a key of globex already"):
        Identity({"globex": keyed("sesame")}, file)
    with pytest.raises(BadTenants, match="tenants_file: acme: is in the setting `tenants` already"):
        Identity({"acme": TenantSettings()}, file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme: {weight: -1}", r"tenants_file: acme\.weight: .*greater than 0, got -1"),
        ("acme: {guard: {pattern_ms: 9}}", r"tenants_file: acme\.guard\.pattern_ms: no longer a setting, always 5"),
        ("acme: {guard: {denied_patterns: ['a*']}}", r"acme\.guard\.denied_patterns: .*a match of 1 to 200 characters"),
        ("acme: {wieght: 1}", r"tenants_file: acme\.wieght: Extra inputs"),
        (
            "acme: {tools: search}",
            r"tenants_file: acme\.tools\.0: a tool is needed as source/name, such as collections/search_\*, or \* for "
            r"all, got 'search'",
        ),
        ("acme: {provider: stores}", r"tenants_file: acme\.provider\.0: Input should be .*, got 'stores'"),
        ("acme: {keys: [sesame]}", r"tenants_file: acme\.keys\.0\.sha256: .*pattern.*, got \*+$"),
        ("acme: {keys: [{key: sesame}]}", r"tenants_file: acme\.keys\.0\.sha256: Field required, got \*+$"),
        (f"acme: {{keys: [{{sha256: {'a' * 64}, expires: 30}}]}}", r"acme\.keys\.0\.expires: .*a time such as 2027"),
        ("acme: {key: sesame}", r"tenants_file: acme\.key: Extra inputs are not permitted, got \*+$"),
        ("acme: sesame", r"tenants_file: acme: .*dictionary.*, got \*+$"),
        ("- acme", r"tenants_file: .*tenants\.yaml: .*dictionary"),
        ("", r"tenants_file: .*tenants\.yaml: .*dictionary"),
        ("acme: {", "tenants_file: while parsing"),
        ("acme: 2026-02-30", "tenants_file: day "),
        ("[" * 500, "tenants_file: nested too deeply"),
        ("acme: 0x" + "f" * 4_000, "tenants_file: Exceeds the limit"),
        ("acme: {premium: !!bool maybe}", r"tenants_file: a value that is none of its tag's \(KeyError\)"),
        ("acme: {premium: !!timestamp soon}", r"tenants_file: a value that is none of its tag's \(AttributeError\)"),
    ],
)
def test_a_bad_file_stops_the_start_with_its_field_and_problem(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(BadTenants, match=said):
        Identity({}, file)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadTenants, match="No such file"):
        Identity({}, tmp_path / "none.yaml")


async def test_the_file_is_read_again_when_it_has_changed(file: Path) -> None:
    identity = Identity({"globex": keyed("other")}, file)
    assert identity.tenant("Bearer sesame").premium
    write(file, acme={"keys": [digest("new")], "weight": 3})
    await followed(identity)
    assert identity.tenant("Bearer new").weight == 3
    assert identity.tenant("Bearer other").name == "globex"
    with pytest.raises(KeyUnknown):
        identity.tenant("Bearer sesame")  # revoked


async def test_a_file_that_is_still_being_written_is_not_read(file: Path) -> None:
    identity = Identity({}, file)
    write(file)
    await identity.refresh()
    write(file, acme={"keys": [digest("new")]})
    await identity.refresh()
    assert identity.tenant("Bearer sesame").name == "acme"
    await identity.refresh()
    assert identity.tenant("Bearer new").name == "acme"


@pytest.mark.parametrize("text", ["acme: {weight: -1}", "acme: {", "", None])
async def test_a_bad_file_is_reported_once_and_changes_nothing(
    file: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity({}, file)
    spoil(file, text)
    for _ in range(3):
        await followed(identity)
    assert identity.tenant("Bearer sesame").name == "acme"
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "tenants_file: " in errors[0].message
    write(file, acme={"keys": [digest("new")]})
    await followed(identity)
    assert identity.tenant("Bearer new").name == "acme"


async def test_taking_the_last_key_away_opens_nothing(file: Path) -> None:
    identity = Identity({}, file)
    write(file, acme={"premium": True})
    await followed(identity)
    for header in (None, "Bearer sesame"):
        with pytest.raises(KeyUnknown):
            identity.tenant(header)


async def test_the_first_key_closes_an_open_gateway(file: Path) -> None:
    write(file, local={"concurrency": 2})
    identity = Identity({}, file, anonymous=True)
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
    identity = Identity({}, file)
    running = asyncio.create_task(identity.run())
    write(file, acme={"keys": [digest("new")]})
    await until(lambda: knows(identity, "new"))
    running.cancel()
    await asyncio.wait([running])


def knows(identity: Identity, key: str) -> bool:
    try:
        identity.tenant(f"Bearer {key}")
    except KeyUnknown:
        return False
    return True


async def test_a_proven_tenant_has_what_the_file_says_now(file: Path) -> None:
    identity = Identity({}, file)
    write(file, beta={"keys": [digest("b")], "premium": True})
    await followed(identity)
    assert identity.tenant(None, ["beta"]).premium
    assert not identity.tenant(None, ["acme"]).premium


def test_a_tool_or_a_permission_alone_needs_no_list() -> None:
    settings = TenantSettings.model_validate({"tools": "collections/*", "provider": "store"})
    assert (settings.tools, settings.provider) == (("collections/*",), ("store",))
