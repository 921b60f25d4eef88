"""TLS that resumes sessions, for whatever stands on asyncio.

`asyncio` (uvloop as well) makes every TLS connection by its context's `wrap_bio`, which can take an earlier session but
is never given one: all handshakes are full ones. This context gives it the last session with the same server.
"""

from __future__ import annotations

import ssl


def client_context(ca_file: str) -> ssl.SSLContext:
    """The context of a client that checks certificates against `ca_file`, or against the machine's CAs. Raises
    OSError."""
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
        if known := _session(self._newest.get(name)):
            self._sessions[name] = known
        wrapped = super().wrap_bio(
            incoming, outgoing, server_side, server_hostname, session or self._sessions.get(name)
        )
        self._newest[name] = wrapped
        return wrapped


def _session(of: ssl.SSLObject | None) -> ssl.SSLSession | None:
    """A session that can be resumed; with TLS 1.3 there is none until the server has sent a ticket, after the
    handshake."""
    if of is None or not of.version():  # OpenSSL fails on a session in the middle of its handshake
        return None
    session = of.session
    return session if session and (session.has_ticket or of.version() != "TLSv1.3") else None
