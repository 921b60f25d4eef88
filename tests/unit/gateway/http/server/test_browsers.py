"""Pages that have their reader's browser call a gateway without keys."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from services.gateway.http.server.endpoint import check_page
from services.runtime.errors import Forbidden

HERE = "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("headers", "origins", "refused"),
    [
        ({}, (), ""),  # no browser
        ({"host": HERE}, (), ""),
        ({"host": "[::1]:8080"}, (), ""),
        ({"host": "localhost"}, (), ""),
        ({"host": "mesh.localhost:8080"}, (), ""),
        ({"host": HERE, "origin": f"http://{HERE}"}, (), ""),  # a page of the gateway's own
        ({"host": HERE, "sec-fetch-site": "same-origin"}, (), ""),
        ({"host": HERE, "sec-fetch-site": "none"}, (), ""),  # typed by the reader
        (
            {"host": HERE, "origin": "https://good.example", "sec-fetch-site": "cross-site"},
            ("https://good.example",),
            "",
        ),
        ({"host": HERE, "origin": "https://evil.example"}, ("*",), ""),
        ({"host": HERE, "origin": "https://evil.example"}, ("https://good.example",), "origin: "),
        ({"host": HERE, "origin": "null"}, (), "origin: "),  # of a file, or a frame without rights
        ({"host": HERE, "origin": "http://127.0.0.1:3000"}, (), "origin: "),
        ({"host": HERE, "sec-fetch-site": "cross-site"}, (), "sec-fetch-site: "),
        ({"host": HERE, "sec-fetch-site": "same-site"}, (), "sec-fetch-site: "),
        ({"host": "evil.example:8080"}, (), "host: "),  # the name was pointed here
        ({"host": "evil.example:8080", "origin": "http://evil.example:8080"}, ("*",), "host: "),
        ({"host": "localhost.evil.example"}, (), "host: "),
        ({"host": "127.0.0.1.evil.example"}, (), "host: "),
        ({"host": "[::1"}, (), "host: "),
    ],
)
def test_a_page_elsewhere_may_not_call(headers: dict[str, str], origins: tuple[str, ...], refused: str):
    with pytest.raises(Forbidden, match=f"^{refused}") if refused else nullcontext():
        check_page(headers, origins, loopback=True)


def test_a_gateway_that_others_can_reach_may_have_a_name():
    check_page({"host": "gateway:8080"}, (), loopback=False)
