"""Pages that are asked for by HTTP: those of a gateway, of Envoy, and lists of models."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from hedgerow._peer import stays_here


def ask(request: Request, timeout_s: float) -> Any:
    """The response, as `urllib.request.urlopen` gives it. A redirect is an `HTTPError`: the credential would be sent
    along. No proxy of the environment gets requests to this machine."""
    direct = [ProxyHandler({})] if stays_here(urlsplit(request.full_url).netloc) else []
    return build_opener(_NoRedirects, *direct).open(request, timeout=timeout_s)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
