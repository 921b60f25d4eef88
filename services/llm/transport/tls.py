"""TLS that resumes sessions, for whatever stands on asyncio.

`asyncio` (uvloop as well) makes every TLS connection by its context's `wrap_bio`, which can take an earlier session but
is never given one: all handshakes are full ones. This context gives it the last session with the same server.
"""

from __future__ import annotations

import ssl


def client_context(ca_file: str) -> ssl.SSLContext:
    """For a client that checks certificates against `ca_file`, or against the machine's CAs. Raises OSError."""
    context = _ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file:
        context.load_verify_locations(ca_file)
    else:
        context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _ResumingContext(ssl.SSLContext):
    def __init__(self, protocol: int):
        super().__init__()
        self._newest: dict[str | None, ssl.SSLObject] = {}
        self._sessions: dict[str | None, ssl.SSLSession] = {}

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        name = str(server_hostname)
        # Tickets come after the handshake (TLS 1.3), so that a session can only be taken once it has been used.
        newest = self._newest.get(name)
        if newest and newest.session and (newest.session.has_ticket or newest.version() == "TLSv1.2"):
            self._sessions[name] = newest.session
        wrapped = super().wrap_bio(
            incoming, outgoing, server_side, server_hostname, session or self._sessions.get(name)
        )
        self._newest[name] = wrapped
        return wrapped
