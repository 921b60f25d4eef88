from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.gateway.admission.credential import Credential
from services.gateway.admission.identity import Identity
from services.gateway.errors import CredentialExpired, KeyExpired, KeyUnknown
from services.gateway.settings.tenants import TenantSettings
from tests.clock import PausedClock
from tests.keys import digest
from tests.unit.gateway.admission.tenants_file import followed, write

EDGE = "edge"


def key(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {name}"),)


def write_keys(file: Path, concurrency: int = 0, **keys: str) -> None:
    """Tenants, with a key of each."""
    write(file, **{tenant: {"keys": [digest(key)], "concurrency": concurrency} for tenant, key in keys.items()})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("services.gateway.admission.credential._LOOK_S", 0.01)
    write_keys(path := tmp_path / "tenants.yaml", a="first", b="second")
    return path


async def test_a_credential_is_good_until_its_key_is_revoked(file: Path):
    identity = Identity({}, file)
    credential = Credential(identity, key("first"), "")
    assert credential.tenant.name == "a"
    credential.check()
    write_keys(file, b="second")
    await followed(identity)
    with pytest.raises(KeyUnknown):
        credential.check()
    Credential(identity, key("second"), "").check()


async def test_a_key_that_becomes_another_tenants_is_not_the_callers_any_more(file: Path):
    identity = Identity({}, file)
    credential = Credential(identity, key("first"), "")
    write_keys(file, c="first")
    await followed(identity)
    with pytest.raises(KeyUnknown, match="of another tenant now"):
        credential.check()


async def test_a_tenant_has_what_it_may_have_now(file: Path):
    identity = Identity({}, file)
    credential = Credential(identity, key("first"), "")
    write_keys(file, concurrency=3, a="first")
    await followed(identity)
    credential.check()
    assert credential.tenant.allowance.concurrency == 3


async def test_a_watch_of_a_credential_raises_its_end(file: Path):
    identity = Identity({}, file)
    watching = asyncio.create_task(Credential(identity, key("first"), "").watch())
    write_keys(file, b="second")
    await followed(identity)
    with pytest.raises(KeyUnknown):
        await asyncio.wait_for(watching, 5)


async def test_silent_work_is_cancelled_when_its_key_is_revoked(file: Path):
    identity, gone, over = Identity({}, file), asyncio.Event(), asyncio.Event()

    async def silent() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    working = asyncio.create_task(Credential(identity, key("first"), "").during(silent()))
    other = asyncio.create_task(Credential(identity, key("second"), "").during(over.wait()))
    write_keys(file, b="second")
    await followed(identity)
    with pytest.raises(KeyUnknown):
        await asyncio.wait_for(working, 5)
    assert gone.is_set()
    over.set()
    assert await other


async def test_work_has_its_own_errors_and_can_be_cancelled(file: Path):
    credential = Credential(Identity({}, file), key("first"), "")

    async def late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await credential.during(late())
    working = asyncio.create_task(credential.during(asyncio.sleep(60)))
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_call_ends_when_its_key_expires():
    clock = PausedClock()  # 1,000 s after 1970 began
    keys = [digest("first"), {"sha256": digest("second"), "expires": "1970-01-01T00:16:41Z"}]
    identity = Identity({"a": TenantSettings.model_validate({"keys": keys})}, None, clock=clock)
    first, second = Credential(identity, key("first"), ""), Credential(identity, key("second"), "")
    second.check()
    clock.advance(1)
    await identity.refresh()
    first.check()
    with pytest.raises(KeyExpired):
        second.check()


def test_a_token_is_good_for_as_long_as_the_edge_takes_it():
    now = 1_000.0
    headers = (("x-hedgerow-tenant", "a"), ("x-hedgerow-expires", "990"))
    credential = Credential(Identity({"a": TenantSettings()}, None, anonymous=True), headers, EDGE, lambda: now)
    now = 1_049.0  # 60 s of skew
    credential.check()
    now = 1_050.0
    with pytest.raises(CredentialExpired) as expired:
        credential.check()
    assert expired.value.reason == "CREDENTIAL_EXPIRED"


@pytest.mark.parametrize(("caller", "value"), [("", "1"), ("operator", "1"), (EDGE, "soon"), (EDGE, "")])
def test_only_the_edge_says_when_a_token_ends(caller: str, value: str):
    Credential(Identity({}, None, anonymous=True), (("x-hedgerow-expires", value),), caller).check()
