"""`/readyz` and `/livez` on the metrics port, for probes of a kubelet, which has no client certificate.

With `tls_dir` the gRPC port refuses callers without a certificate of the mesh, such as Kubernetes' gRPC probes. The
event loop that serves calls answers both pages, so a blocked loop fails them. They contain a status only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import CancelledError
from http import HTTPStatus
from typing import TYPE_CHECKING

from services.runtime.process.health import Health

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

READY, LIVE = "/readyz", "/livez"
_LOOP_S = 0.9  # below the second that a probe waits by default
_STUCK = "the event loop did not answer"


class ProbePages:
    """Both pages, for use on other threads; `health` belongs to the event loop `loop`."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop, loop_s: float = _LOOP_S):
        self.health = health  # replaced on `loop` when another service becomes the first of the process
        self._loop, self._loop_s = loop, loop_s

    def before(self, others: WSGIApplication) -> WSGIApplication:
        """A WSGI application of both pages; `others` answers other paths."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path not in (READY, LIVE):
                return others(environ, start_response)
            status, text = self._ask(self._ready() if path == READY else self._live())
            start_response(f"{status.value} {status.phrase}", [("content-type", "text/plain")])
            return [f"{text}\n".encode()]

        return answer

    async def _ready(self) -> tuple[HTTPStatus, str]:
        if self.health.serving:
            return HTTPStatus.OK, "SERVING"
        return HTTPStatus.SERVICE_UNAVAILABLE, "NOT_SERVING"

    async def _live(self) -> tuple[HTTPStatus, str]:
        return HTTPStatus.OK, "live"

    def _ask(self, question: Coroutine[None, None, tuple[HTTPStatus, str]]) -> tuple[HTTPStatus, str]:
        """The answer of the event loop, or an error status if the loop is blocked or closed."""
        try:
            asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:  # closed
            question.close()
            return HTTPStatus.SERVICE_UNAVAILABLE, _STUCK
        try:
            return asked.result(self._loop_s)
        except (TimeoutError, CancelledError):
            asked.cancel()
            return HTTPStatus.SERVICE_UNAVAILABLE, _STUCK
