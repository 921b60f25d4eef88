"""The parts of a JSON body are counted before objects are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.admission.intake import Limits
from services.gateway.http import json_limits
from services.gateway.http.fields import parse
from services.runtime.errors import InvalidInput
from tests.examples import examples

FEW = Limits(values=60, items=12, messages=10)
TEXTS = st.text(alphabet=st.sampled_from('a"\\,[]{}: \n'), max_size=30)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=16) | st.dictionaries(TEXTS, inner, max_size=16),
    max_leaves=80,
)


def counted(given: Any) -> int:
    """As the limit counts: commas, and what opens."""
    if not isinstance(given, list | dict):
        return 0
    values = given.values() if isinstance(given, dict) else given
    return 1 + max(0, len(given) - 1) + sum(map(counted, values))


def widest(given: Any) -> int:
    if not isinstance(given, list | dict):
        return 0
    values = given.values() if isinstance(given, dict) else given
    return max([len(given), *map(widest, values)])


def refused(body: bytes, limits: Limits = FEW) -> str:
    with pytest.raises(InvalidInput) as caught:
        json_limits.check(body, limits)
    return caught.value.message


@settings(max_examples=examples(200), deadline=None)
@given(body=VALUES, piece=st.integers(1, 9), escapes=st.booleans())
def test_a_text_is_refused_for_what_is_in_it_and_not_in_its_strings(body: Any, piece: int, escapes: bool) -> None:
    text = json.dumps({"x": body}, ensure_ascii=escapes).encode()
    too_much = counted({"x": body}) > FEW.values or widest(body) > FEW.items
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_limits, "_PIECE", piece)
        if too_much:
            assert refused(text).startswith("body: at most ")
        else:
            json_limits.check(text, FEW)


@pytest.mark.parametrize("name", ["messages", "input"])
def test_a_conversation_may_be_longer_than_other_arrays(name: str) -> None:
    long = [0] * FEW.long
    json_limits.check(json.dumps({"x": [1, 2], name: long}).encode(), FEW)
    json_limits.check(json.dumps({"x": [1, 2], name: long}, indent=1).encode(), FEW)
    assert "at most 12 elements" in refused(json.dumps({name: [*long, 0]}).encode())
    assert "at most 12 elements" in refused(json.dumps({"x": [0] * 13, name: long[:20]}).encode())
    assert "at most 12 elements" in refused(json.dumps({"x": f'"{name}": [', "y": [0] * 13}).encode())


def test_the_usual_limits_let_the_longest_conversation_through() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": 'a, [b] {"c"}'}]}
    json_limits.check(json.dumps({"messages": [message] * 100_000}).encode(), Limits())


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","messages":[' + b"{}," * 7_000_000 + b"{}]}",
        b'{"model":"m","input":[' + b'{"role":"user","content":"a"},' * 700_000 + b"0]}",
        b'{"tools":[' + b'{"type":"function","function":{"name":"t"}},' * 100_000 + b"0]}",
        b'{"stop":[' + b'"x",' * 100_000 + b'"x"]}',
        b'{"messages":[{"content":[' + b'{"type":"image_url","image_url":{"url":"data:,"}},' * 100_000 + b"0]}]}",
        json.dumps({"properties": {f"p{number}": {"type": "string"} for number in range(100_000)}}).encode(),
    ],
    ids=["empty objects", "items", "tools", "stops", "pictures", "properties"],
)
def test_a_body_of_too_many_values_is_refused_before_any_is_made(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.runtime.strict_json.loads", None)
    with pytest.raises(InvalidInput, match="body: at most"):
        parse(body)


def test_brackets_that_do_not_match_are_for_the_parser_to_refuse() -> None:
    for text in (b"[" * 15, b"]" * 15 + b"[", b"[}" * 15, b',"' + b"," * 5, b"," * 10):
        json_limits.check(text, FEW)


def test_a_deep_text_of_many_values_is_refused_at_the_first_level_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[int]()

    class Tokens:
        def finditer(self, text: bytes) -> Iterator[re.Match[bytes]]:
            for found in re.finditer(rb",+|[^,]", text):
                opened.append(1)
                yield found

    monkeypatch.setattr(json_limits, "_TOKEN", Tokens())
    monkeypatch.setattr("services.runtime.strict_json.loads", None)
    deep = b'{"a":[1,2,' * 5_000 + b"0" + b"]}" * 5_000
    with pytest.raises(InvalidInput, match="nested too deeply"):
        parse(b"[" + b",".join([deep] * 20) + b"]")
    assert len(opened) < 10_000
