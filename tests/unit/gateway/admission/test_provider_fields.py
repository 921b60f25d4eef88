"""The check of bodies that go to a provider in their caller's own words."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.admission.provider_fields import MOST_OBJECTS, MOST_VALUES, check_body
from services.gateway.errors import FieldDenied
from services.runtime.errors import InvalidInput

URL = "http://169.254.169.254/latest"
PART = {"type": "image_url", "image_url": {"url": URL}}
DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}


def checked(*permitted: str, **body: Any) -> None:
    for _ in check_body(body, permitted, "acme"):
        pass


@pytest.mark.parametrize(
    "body",
    [
        {"input": [PART]},
        {"input": PART},
        {"input": [[PART]]},
        {"input": ["a text", PART]},
        {"input": [{"image": URL}]},
        {"input": [{"image": {"url": URL}}]},
        {"input": [{"url": URL}]},
        {"inputs": [{"content": [PART]}]},
        {"documents": {"content": [PART]}},
        {"documents": [{"content": [PART]}]},
        {"query": {"content": [PART]}},
        {"text_1": {"content": [PART]}},
        {"images": [URL]},
        {"images": [["file:///etc/passwd"]]},
        {"image": f" {URL}"},
        {"image_url": URL},
        {"messages": [{"role": "user", "content": [PART]}]},
    ],
    ids=str,
)
def test_an_address_needs_the_permission_for_files_wherever_it_stands(body: dict[str, Any]) -> None:
    with pytest.raises(FieldDenied, match=r"provider: \[files\]"):
        checked(**body)
    checked("files", **body)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "http://a.test/ is an address in a text"},
        {"input": [[5754, 1030], [3]], "dimensions": 256},
        {"input": [DATA, {"text": URL}, {"image": "iVBORw0KGgo="}]},
        {"images": ["data:image/png;base64,iVBOR", "iVBORw0KGgo="]},
        {"query": "q", "documents": [URL, {"text": "a", "url": URL, "title": "image: none"}]},
        {"store": None, "user": "u"},
    ],
    ids=str,
)
def test_texts_tokens_and_data_need_no_permission(body: dict[str, Any]) -> None:
    checked(**body)


def test_a_field_that_is_another_one_but_for_capital_letters_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Model: model in lower case, got upper case"):
        checked(model="m", Model="dear")
    checked(model="m", inputType="query")


@pytest.mark.parametrize(
    "body",
    [{"models": ["other"]}, {"fallbacks": [{"a": 1}]}, {"model_list": ["x"]}, {"Store": True}, {"cache_salt": "x"}],
    ids=str,
)
def test_fields_that_a_permission_names_are_checked_as_a_whole(body: dict[str, Any]) -> None:
    with pytest.raises(FieldDenied):
        checked(**body)


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"a": [{}] * MOST_OBJECTS, "b": [{}]}, f"at most {MOST_OBJECTS} objects"),
        ({"a": [{"b": ["c"] * MOST_VALUES}]}, f"at most {MOST_VALUES} values"),
        ({"images": ["c"] * (MOST_VALUES + 1)}, f"at most {MOST_VALUES} values"),
    ],
    ids=["objects", "values of an object", "values of a field"],
)
def test_more_than_can_be_checked_is_refused_by_name(body: dict[str, Any], limit: str) -> None:
    with pytest.raises(InvalidInput, match=limit):
        checked(**body)
