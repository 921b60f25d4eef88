"""Settings of the gateway that many scenes share."""

from __future__ import annotations

from services.gateway.config import GatewaySettings

_made: dict[str, GatewaySettings] = {}


def gateway_settings(**given: object) -> GatewaySettings:
    """Made once of the same values, because that takes milliseconds; they are frozen."""
    key = repr(given)
    if key not in _made:
        _made[key] = GatewaySettings(**given)
    return _made[key]
