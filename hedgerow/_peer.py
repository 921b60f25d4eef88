"""Who is called, and as whom."""

from __future__ import annotations

from dataclasses import dataclass

from hedgerow._propagation import trace_headers
from hedgerow._tls import Tls


@dataclass(frozen=True, slots=True)
class Peer:
    """A service at an address: `host:port`, `unix:path` or `xds:///name`."""

    target: str
    api_key: str | None = None
    service: str = "gateway"  # what errors call it
    tls: Tls | None = None  # None: plain text

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What travels with a call: who calls, and the caller's span."""
        key = (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()
        return (*key, *trace_headers())
