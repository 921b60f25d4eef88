"""Which pages may have their reader's browser call a gateway that asks its callers for no credential.

A browser sends a page's requests from its reader's machine, so a page elsewhere reaches what only that machine can
reach. The browser says where a page is from (`Origin`, `Sec-Fetch-Site`). It does not where the page's own name has
been pointed at the gateway's address since the page was loaded: then that name is in `Host`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from services.runtime.errors import Forbidden, shorten
from services.runtime.process.config import is_local_host

_ELSEWHERE = ("cross-site", "same-site")


def check(headers: Mapping[str, str], origins: Collection[str], *, loopback: bool) -> None:
    """Raise `Forbidden` for a page of another origin than `origins` and the gateway's own. `loopback`: whether the
    gateway serves its own machine alone, so that it has no name but that machine's."""
    host, origin = headers.get("host", ""), headers.get("origin", "")
    if loopback and not is_local_host(host):
        raise Forbidden(f"host: localhost or an address, where callers need no key, got {shorten(host)}")
    if "*" in origins or origin in origins:
        return
    if origin and origin.partition("://")[2] != host:
        raise Forbidden(f"origin: one of http.cors_origins, where callers need no key, got {shorten(origin)}")
    if not origin and headers.get("sec-fetch-site") in _ELSEWHERE:
        raise Forbidden("sec-fetch-site: none of a page elsewhere, where callers need no key")
