"""`/readyz` and `/livez` on the port of the metrics, for probes of a kubelet, which has no client certificate.

With `tls_dir` the gRPC port refuses a caller without a certificate of the mesh, and Kubernetes' gRPC probes have none.
Both pages are answered by the event loop that serves the calls, so a loop that is stuck fails them. They hold a
status and nothing else.
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
    """Used by threads; `loop` is where `health` is used."""

    def __init__(self, health: Health, loop: asyncio.AbstractEventLoop, loop_s: float = _LOOP_S):
        self.health = health  # of another service, once that one takes the place of the first; set on `loop`
        self._loop, self._loop_s = loop, loop_s

    def before(self, others: WSGIApplication) -> WSGIApplication:
        """Both pages, and `others` for every other path."""

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
        """The loop's answer, unless it is stuck or closed."""
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
