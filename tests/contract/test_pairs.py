"""`docs/fields.csv` has the treatment of every published request field."""

from __future__ import annotations

from docs import pairs as page


def test_the_file_has_every_field_of_the_published_schemas() -> None:
    assert page.PAGE.read_text() == page.render(), "run `make docs`"
