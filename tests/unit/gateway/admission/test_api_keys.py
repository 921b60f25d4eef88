"""API keys that expire."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.admission.identity import Identity
from services.gateway.errors import KeyExpired, KeyUnknown
from services.gateway.settings.tenants import TenantSettings
from tests.clock import PausedClock
from tests.keys import digest

EXPIRING = [{"sha256": digest("sesame"), "expires": "1970-01-01T00:16:41Z"}]


def expiring(at: str) -> TenantSettings:
    return TenantSettings.model_validate({"keys": [{"sha256": digest("sesame"), "expires": at}]})


def test_a_key_is_refused_from_its_expiry_on_with_the_time() -> None:
    clock = PausedClock()  # 1,000 s after 1970 began
    identity = Identity({"acme": expiring("1970-01-01T00:16:41Z")}, None, clock=clock)
    assert identity.tenant("Bearer sesame").name == "acme"
    clock.advance(1)
    with pytest.raises(KeyExpired, match="authorization: this API key expired at 1970-01-01T00:16:41Z") as expired:
        identity.tenant("Bearer sesame")
    assert expired.value.reason == "KEY_EXPIRED"
    with pytest.raises(KeyExpired):
        identity.tenant("Bearer sesame", ["acme"])


def test_a_gateway_whose_keys_have_all_expired_is_not_open(caplog: pytest.LogCaptureFixture) -> None:
    identity = Identity({"acme": expiring("2020-01-31")}, None, anonymous=True)
    with pytest.raises(KeyUnknown):
        identity.tenant(None)
    assert "without a key, no caller can be acme" in caplog.text


def test_a_key_that_is_there_twice_is_good_until_the_first_time() -> None:
    clock = PausedClock()
    twice = TenantSettings.model_validate(
        {"keys": [digest("sesame"), {"sha256": digest("sesame").upper(), "expires": "1970-01-01T00:16:41Z"}]}
    )
    identity = Identity({"acme": twice}, None, clock=clock)
    clock.advance(1)
    with pytest.raises(KeyExpired):
        identity.tenant("Bearer sesame")


@pytest.mark.parametrize(("keys", "follows"), [([digest("sesame")], False), (EXPIRING, True)])
async def test_the_identity_follows_the_clock_where_a_key_has_an_expiry(
    monkeypatch: pytest.MonkeyPatch, keys: list[object], follows: bool
) -> None:
    monkeypatch.setattr("services.gateway.admission.identity._POLL_S", 0.001)
    clock = PausedClock()
    identity = Identity({"acme": TenantSettings.model_validate({"keys": keys})}, None, clock=clock)
    running = asyncio.create_task(identity.run())
    if not follows:
        await running
        return
    for version in (1, 2):  # the clock is set back in between
        clock.advance(1)
        while identity.version < version:
            await asyncio.sleep(0.001)
        clock.advance(-1)
        while identity._refreshed_at > clock():
            await asyncio.sleep(0.001)
    running.cancel()
