"""HTTP/2 where the provider offers it (ALPN, so over TLS only): all answers share a connection. HTTP/1.1 elsewhere.

pyqwest, which is reqwest and hyper: httpx never notifies the provider that its caller has left (it sends no
RST_STREAM), so that it generates to the end (ADR 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from services.llm.errors import BadEngineSettings
from services.llm.providers.transport.wire import Broken, Lost, NoReply, NotConnected, Options, failure

try:
    import pyqwest
except ModuleNotFoundError as missing:
    raise BadEngineSettings(
        "http_version: 2 needs the package pyqwest: pip install 'hedgerow[llm-remote]'"
    ) from missing


_ERRORS = (OSError, TimeoutError, pyqwest.ReadError, pyqwest.WriteError, pyqwest.RemoteProtocolError)
_REASONS = {"Connection refused": "connection refused", "dns error": "host name not found"}


class Http2:
    """Through the proxy that the environment names."""

    def __init__(self, options: Options):
        """Raises OSError when `ca_file` cannot be read, RuntimeError when it holds no certificate."""
        self._transport = pyqwest.HTTPTransport(
            tls_ca_cert=Path(options.ca_file).read_bytes() if options.ca_file else None,
            tls_include_system_certs=not options.ca_file,
            connect_timeout=options.connect_s,
            read_timeout=options.read_s,
            pool_idle_timeout=options.idle_s,
            pool_max_idle_per_host=options.max_connections,
            enable_gzip=False,
            enable_brotli=False,
            enable_zstd=False,
            use_system_dns=True,
            follow_redirects=False,
            enable_otel=False,
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, on_new: bool = False
    ) -> _Reply:
        """There is one connection: another request after its end is on a new one. Whether it was a kept one, pyqwest
        does not say."""
        try:
            return _Reply(
                await self._transport.execute(pyqwest.Request(method, url, pyqwest.Headers(headers.items()), body))
            )
        except pyqwest.WriteError as error:
            raise Lost(type(error).__name__, kept=True) from None
        except ConnectionError as error:  # pyqwest has no other class for it
            raise NotConnected(_words(error), kept=False) from None
        except _ERRORS as error:
            raise NoReply(failure(error)) from None

    async def close(self) -> None:
        await self._transport.aclose()


def _words(error: Exception) -> str:
    """pyqwest has one class for all failures to connect, and the reason in its text alone."""
    text = str(error)
    return next((words for part, words in _REASONS.items() if part in text), failure(error))


class _Reply:
    def __init__(self, response: pyqwest.Response):
        self._response, self._content = response, response.content
        self.status = response.status
        self.ended = False

    @property
    def headers(self) -> Mapping[str, str]:
        return dict(self._response.headers.items())

    async def read(self) -> bytes:
        try:
            chunk = bytes(await anext(self._content, b""))
        except _ERRORS as error:
            raise Broken(failure(error)) from None
        self.ended = not chunk
        return chunk

    async def drop(self) -> None:
        await self._response.aclose()
