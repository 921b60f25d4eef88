"""How the gateway is assembled from its settings."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from services.gateway.__main__ import assemble
from services.gateway.config import GatewaySettings
from services.runtime.security.tls import Dial


class Dialled(Exception):
    """The gateway asks how to reach services."""


@pytest.mark.parametrize("wanted", [True, False])
async def test_standing_streams_are_a_setting(wanted: bool) -> None:
    def dialing(_: Path | None, *, streams: bool) -> AbstractAsyncContextManager[Dial]:
        raise Dialled(streams)

    settings = GatewaySettings(llm_addresses={"small": ["127.0.0.1:1"]}, standing_streams=wanted)
    with pytest.raises(Dialled, match=str(wanted)):
        async with assemble(settings, dialing):
            pass
