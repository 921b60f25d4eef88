"""Opens the wire to a provider: HTTP/1.1 or HTTP/2, as its settings say."""

from __future__ import annotations

from services.llm.errors import BadEngineSettings
from services.llm.providers.config import ProviderSettings
from services.llm.providers.transport.http1 import Http1
from services.llm.providers.transport.wire import Options, Wire


def open_wire(group: str, own: ProviderSettings, url: str) -> Wire:
    """Raises BadEngineSettings; `group` names the settings."""
    options = Options(
        max_connections=own.max_connections,
        connect_s=own.connect_timeout_ms / 1000,
        read_s=own.read_timeout_ms / 1000,
        idle_s=own.idle_timeout_ms / 1000,
        ca_file=own.ca_file,
    )
    try:
        if own.http_version == "1.1":
            return Http1(url, options)
        from services.llm.providers.transport.http2 import Http2  # not every process needs it

        return Http2(options)
    except (OSError, RuntimeError) as error:
        raise BadEngineSettings(f"{group}.ca_file: must hold certificates as PEM ({type(error).__name__})") from None
