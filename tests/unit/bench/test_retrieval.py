"""The questions about our pages are answered where they say."""

from __future__ import annotations

import re

from bench.retrieval import Place, pages, questions
from hedgerow import CollectionHit


def hit(source: str, title: str) -> CollectionHit:
    return CollectionHit(source, title, "text", 1.0, None, 0)


def test_every_question_names_pages_and_sections_that_there_are() -> None:
    known = pages()
    headings = {page: {found.strip() for found in re.findall(r"^#+ (.*)$", text, re.M)} for page, text in known.items()}
    places = [place for question in questions() for place in question.places]
    assert [place for place in places if place.page not in known] == []
    assert [place for place in places if place.section and place.section not in headings[place.page]] == []
    assert len({question.text for question in questions()}) == len(questions()) >= 100


def test_a_section_holds_what_stands_below_it_and_a_page_all_of_it() -> None:
    section = Place("mesh.md", "Ports")
    assert section.holds(hit("mesh.md", "Mesh › Ports › Free ones"))
    assert not section.holds(hit("mesh.md", "Mesh › Ports of call"))
    assert not section.holds(hit("other.md", "Ports"))
    assert Place("mesh.md", "").holds(hit("mesh.md", "Mesh"))
