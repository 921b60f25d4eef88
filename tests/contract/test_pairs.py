"""The page of the HTTP API says of every published field what becomes of it."""

from __future__ import annotations

from docs import pairs as page


def test_the_page_has_every_field_of_the_published_schemas() -> None:
    assert page.PAGE.read_text() == page.render(page.PAGE.read_text()), "run `make docs`"
