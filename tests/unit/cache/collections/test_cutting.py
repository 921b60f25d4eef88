"""Snippets are a document's own text, whole and in order, and no longer than an embedder reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.collections.chunking import BETWEEN, LONGEST, cut, title_of
from services.cache.collections.documents import Document, Format, Passage, Snippet
from services.cache.tokens import CHARACTERS_PER_TOKEN
from tests.examples import examples

CAP = 32
MARKS = 2  # of the embedder's own pieces
PIECES = re.compile(r"\w{1,7}|[^\w\s]")  # as embedders have them: words fall into pieces, punctuation stands alone


def length(text: str) -> int:
    return len(PIECES.findall(text))


def document(text: str, format: Format = Format.MARKDOWN, title: str = "") -> Document:
    return Document("handbook.md", title, text, format)


def cut_up(text: str, format: Format = Format.MARKDOWN, title: str = "") -> list[Snippet]:
    return list(cut(document(text, format, title), length, CAP))


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count))


# Marks at which texts are cut, marks that could hide them, and text of several scripts.
MORSELS = st.sampled_from(
    [
        "# One\n",
        "## Two ##\n",
        "###### Six\n",
        "```\n# no heading\n",
        "\n\n",
        "\n",
        " ",
        "\t",
        ". ",
        "? ",
        "。",
        "…",
        "\n- item ",
        "| cell |\n",
        "1. step ",
        "Redis is down",
        "שלום עולם",
        "你好世界",
        "a" * 700,
        "é" * 40,
        "\x1c",
        "\u2028",
        "🙂" * 30,
        "x.",
    ]
)


@given(st.lists(MORSELS, max_size=60).map("".join), st.sampled_from(Format), st.sampled_from(["", "Title", words(40)]))
def test_nothing_is_lost_nor_said_twice_and_nothing_is_too_long(text: str, format: Format, title: str) -> None:
    snippets = cut_up(text, format, title)
    at = 0
    for snippet in snippets:
        start = text.index(snippet.text, at)
        assert not text[at:start].strip(" \t\r\n")  # between two of them is nothing but white space
        at = start + len(snippet.text)
        assert length(snippet.searched) <= CAP - MARKS
        assert len(snippet.searched) <= CAP * CHARACTERS_PER_TOKEN
    assert not text[at:].strip(" \t\r\n")


@settings(max_examples=examples(50))
@given(st.text(max_size=1_000))
def test_the_same_holds_of_any_text(text: str) -> None:
    snippets = cut_up(text)
    assert "".join("".join(snippet.text for snippet in snippets).split()) == "".join(text.split())
    assert all(length(snippet.searched) <= CAP - MARKS for snippet in snippets)


def test_a_snippet_says_under_which_headings_it_stands() -> None:
    text = "# Mesh\n\nIntro.\n\n## Cache\n\nKept.\n\n### Walls\n\nApart.\n\n## Router\n\nChosen."
    found = [(snippet.title, snippet.text.splitlines()[-1]) for snippet in cut_up(text)]
    assert found == [
        ("Mesh", "Intro."),
        ("Mesh › Cache", "Kept."),
        ("Mesh › Cache › Walls", "Apart."),
        ("Mesh › Router", "Chosen."),
    ]


def test_the_searched_text_begins_with_as_many_headings_as_fit() -> None:
    (snippet,) = cut_up("Kept.", title=BETWEEN.join([words(12), "Cache"]))
    assert snippet.lead == "Cache\n"
    (snippet,) = cut_up("Kept.", title=words(40))
    assert snippet.lead == ""
    assert snippet.title == words(40)


def test_a_cut_is_made_where_a_paragraph_ends_before_it_is_made_in_a_sentence() -> None:
    first, second = f"{words(15)}. End.", f"{words(15, 'more')}. End."
    assert [snippet.text for snippet in cut_up(f"{first}\n\n{second}", Format.PLAIN)] == [first, second]


@pytest.mark.parametrize("end", ["।", "؟", "۔", "。", "."])
def test_a_sentence_of_any_script_is_not_cut_in_two(end: str) -> None:
    snippets = cut_up(" ".join(f"{words(6)}{end}" for _ in range(6)), Format.PLAIN)
    assert len(snippets) > 1
    assert all(snippet.text.endswith(end) for snippet in snippets)


def test_a_long_paragraph_is_cut_where_sentences_end_into_parts_about_equally_long() -> None:
    sentences = [f"{words(6, chr(97 + number))}." for number in range(6)]
    snippets = cut_up(" ".join(sentences), Format.PLAIN)
    assert all(snippet.text.endswith(".") for snippet in snippets)
    assert {length(snippet.text) // length(sentences[0]) for snippet in snippets} == {3}  # not 4 and 2


def test_rows_of_a_table_and_items_of_a_list_stay_whole() -> None:
    rows = [f"| `setting_{number}` | {words(6)} |" for number in range(8)]
    lines = [line for snippet in cut_up("\n".join(rows)) for line in snippet.text.splitlines()]
    assert lines == rows


def test_a_heading_in_a_block_of_code_is_none() -> None:
    assert [snippet.title for snippet in cut_up("# Run\n\n```sh\n# not a heading\n```\n\nDone.")] == ["Run"]


def test_headings_with_nothing_under_them_go_with_the_next() -> None:
    (snippet,) = cut_up("# Mesh\n## Cache\n### Walls\nApart.")
    assert (snippet.title, snippet.text) == ("Mesh › Cache › Walls", "# Mesh\n## Cache\n### Walls\nApart.")


def test_passages_stay_apart_each_under_its_own_title() -> None:
    passages = (Passage("Ports", "50051."), Passage("", "Free."), Passage("Long", words(40)))
    snippets = list(cut(Document("a", "Mesh", "", Format.PLAIN, passages), length, CAP))
    assert [snippet.title for snippet in snippets] == ["Mesh › Ports", "Mesh", "Mesh › Long", "Mesh › Long"]


@pytest.mark.parametrize(
    ("given_title", "text", "format", "title"),
    [
        ("Given", "# Own\n", Format.MARKDOWN, "Given"),
        ("", "text\n\n## Own\n", Format.MARKDOWN, "Own"),
        ("", "# Own\n", Format.PLAIN, ""),
    ],
)
def test_a_documents_title_is_its_own_or_its_first_heading(
    given_title: str, text: str, format: Format, title: str
) -> None:
    assert title_of(document(text, format, given_title)) == title


@pytest.mark.parametrize(
    "text", ["# " + " " * 200_000 + "x", "\n" * 200_000, "a" * 200_000, "#\n" * 50_000, ". " * 100_000]
)
def test_a_document_that_was_made_to_be_hard_is_cut_all_the_same(text: str) -> None:
    assert "".join("".join(snippet.text for snippet in cut_up(text)).split()) == "".join(text.split())


def test_a_heading_of_any_length_has_a_short_title() -> None:
    text = f"# {'word ' * 20_000}\n" + "## Next\n\ntext\n" * 500
    snippets = cut_up(text)
    assert max(len(snippet.title) for snippet in snippets) == LONGEST + len(BETWEEN) + len("Next")
    assert len(title_of(document(text))) == LONGEST
    assert title_of(document(text)).endswith("word…")


def test_a_title_is_not_tried_in_more_parts_than_a_few() -> None:
    tried = []

    def counted(text: str) -> int:
        tried.append(text)
        return 1_000

    title = BETWEEN.join(["x"] * 60)
    list(cut(Document("a", title, "word", Format.PLAIN), counted, 4_096))
    assert len([text for text in tried if BETWEEN in text]) < 20


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\x1c", "\x85", "\u2028"])
def test_a_line_ends_where_python_ends_it(end: str) -> None:
    text = end.join(["# One", "text", "   ## Two ##", "```", "# code", "```", "    # none", "#none", "# Three"])
    assert [snippet.title for snippet in cut_up(text)] == ["One", "One › Two", "Three"]
