from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime import strict_json


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[" * 1_000, "nested too deeply"),
        ('{"a":' * 5_000, "nested too deeply"),
        ('{"const": NaN}', "NaN is not a JSON number"),
        ('{"const": -Infinity}', "-Infinity is not a JSON number"),
        ('{"const": 1e999}', "number out of range: 1e999"),
        ('{"const": ' + "9" * 401 + "}", "number out of range: 999"),
        ('{"const": -' + "9" * 5_000 + "}", "number out of range: -999"),
        ('{"a": 1, "b": 2, "a": 3}', "the name 'a' twice in one object"),
        (r'{"const": "\ud800"}', r"half a surrogate pair, \\ud800"),
        (r'{"\udc00": 1}', r"half a surrogate pair, \\udc00"),
    ],
)
def test_json_that_only_python_accepts_is_refused(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        strict_json.loads(text)


def test_a_whole_surrogate_pair_is_a_character():
    assert strict_json.loads(r'"\ud83d\ude00"') == "😀"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
def test_json_that_can_be_sent_is_read_as_python_reads_it(value: object):
    assert strict_json.loads(json.dumps(value)) == value


@given(st.text(alphabet='{}[]",:\\ud8a01eE+-.NInfty null', max_size=60))
def test_any_text_is_parsed_or_a_value_error(text: str):
    try:
        parsed = strict_json.loads(text)
    except ValueError:
        return
    json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()
