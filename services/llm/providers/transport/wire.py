"""The seam between a provider's client and a version of HTTP.

Broken
├── Lost       before anything of an answer came
│   └── NotConnected   nothing was sent
└── TooLong    an answer beyond the limit
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Broken(Exception):
    """There is no connection, or it ended early, or what came is not what was asked for.

    Its text says what happened, mostly as `failure` does. Never that error's own text, which may hold an address or
    what was sent.
    """


class NoReply(Broken):
    """The provider has not begun to answer; mostly there is no connection."""


class Lost(NoReply):
    """The connection ended before anything of an answer came.

    `kept`: it was, or may have been, a connection from before that had died unnoticed. Then the provider has most
    likely not seen the request.
    """

    def __init__(self, what: str, kept: bool):
        super().__init__(what)
        self.kept = kept


class NotConnected(Lost):
    """The connection failed."""


class TooLong(Broken):
    """An answer, or an event of one, has more bytes than `most_bytes`."""

    def __init__(self, most_bytes: int, what: str = "an answer"):
        super().__init__(f"{what} of more than {most_bytes} bytes")
        self.most_bytes = most_bytes


def failure(error: BaseException) -> str:
    """Words for the failures of connections that an operator can act on; the class of any other error."""
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "host name not found"
        case ssl.SSLCertVerificationError():
            return "TLS certificate not trusted"
        case ssl.SSLError():
            return "TLS handshake failed: the server may speak plain HTTP"
        case TimeoutError():
            return "timed out"
        case _:
            return type(error).__name__


@dataclass(frozen=True, slots=True)
class Options:
    """How connections are made and kept."""

    max_connections: int  # kept, and answers under way
    connect_s: float
    read_s: float  # the longest silence
    idle_s: float  # an unused connection is closed then
    ca_file: str = ""  # PEM; empty: the machine's own


class WireReply(Protocol):
    """An answer whose head has come."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name in lower case."""
        ...

    @property
    def ended(self) -> bool:
        """Whether all of the body was read, so that the connection is free again."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body, none at its end. Raises Broken."""
        ...

    async def drop(self) -> None:
        """Have the provider stop: at once, and at the price of the connection where an answer has it alone."""
        ...


class Wire(Protocol):
    """Connections to one provider."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, on_new: bool = False
    ) -> WireReply:
        """Ask; `on_new`: on no kept connection. Raises Broken, and Lost. Follows no redirect; when cancelled, the
        provider hears of it."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
