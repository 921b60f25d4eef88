"""The address of a peer, and the caller's credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hedgerow._errors import InvalidArgument
from hedgerow._propagation import trace_headers
from hedgerow._target import refuse_url, stays_here
from hedgerow._tls import Tls

Metadata: TypeAlias = tuple[tuple[str, str], ...]  # what travels with a call, as gRPC takes it


@dataclass(frozen=True, slots=True)
class Peer:
    """A service at an address: `host:port`, `unix:path` or `xds:///name`. Raises `InvalidArgument` for an URL, and
    for an API key that would leave this machine in plain text."""

    target: str
    api_key: str | None = None
    service: str = "gateway"  # what errors call it
    tls: Tls | None = None  # None: plain text
    allow_plaintext_key: bool = False  # whether the key may leave this machine in plain text

    def __post_init__(self) -> None:
        refuse_url(self.target, self.service)
        if self.api_key and not (self.tls or self.allow_plaintext_key or stays_here(self.target)):
            raise InvalidArgument(
                f"tls: required to send an API key to the {self.service} at {self.target}, which may be another "
                "machine, got none; allow_plaintext_key=True sends it nevertheless, readable on the network",
                reason="PLAINTEXT_KEY",
                metadata={"field": "tls", "limit": "required to send an API key", "value": "none"},
            )

    def metadata(self) -> Metadata:
        """Metadata of a call: the credential and the caller's span."""
        key = (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()
        return (*key, *trace_headers())
