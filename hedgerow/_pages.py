"""Pages that are asked for by HTTP: those of a gateway, of Envoy, and lists of models."""

from __future__ import annotations

from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from hedgerow._peer import stays_here


def ask(request: Request, timeout_s: float) -> Any:
    """The response, as `urllib.request.urlopen` gives it. A redirect is an `HTTPError`: the credential would be sent
    along. No proxy of the environment gets requests to this machine. An answer that is not HTTP is a `URLError`."""
    direct = [ProxyHandler({})] if stays_here(urlsplit(request.full_url).netloc) else []
    try:
        return build_opener(_NoRedirects, *direct).open(request, timeout=timeout_s)
    except HTTPException as error:  # for example a port of gRPC
        raise URLError(f"no answer in HTTP/1.1: {type(error).__name__}") from None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
