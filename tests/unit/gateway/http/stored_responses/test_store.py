"""Stored responses as bytes, and as items of the next turn."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.http.stored_responses.store import StoredResponse

THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
OPENED = {**THOUGHT, "encrypted_content": "gAAA"}
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
SEARCH = {"type": "web_search_call", "id": "ws_1"}


def _nameless(item: dict[str, Any]) -> dict[str, Any]:
    return {name: given for name, given in item.items() if name != "id"}


@pytest.mark.parametrize(
    ("output", "sent_back"),
    [
        ([OPENED, SEARCH, TEXT], [OPENED, SEARCH, TEXT]),
        ([THOUGHT, SEARCH, TEXT], [_nameless(SEARCH), _nameless(TEXT)]),
        ([OPENED, SEARCH, THOUGHT, TEXT], [_nameless(SEARCH), _nameless(TEXT)]),
        ([SEARCH, TEXT], [SEARCH, _nameless(TEXT)]),
    ],
    ids=["encrypted", "not encrypted", "one of two", "no thought"],
)
def test_a_provider_that_stores_nothing_gets_no_id_that_it_would_look_for(output: Any, sent_back: Any) -> None:
    asked = [{**THOUGHT, "id": "the caller's own"}]
    assert StoredResponse({"id": "resp_1", "output": output}, asked).conversation == [*asked, *sent_back]


@pytest.mark.parametrize("text", ["Привет, 你好", "half a pair: \ud83d", "\u2028", "two\nlines"])
def test_a_response_is_read_as_it_was_stored(text: str) -> None:
    stored = StoredResponse({"id": "resp_1", "output": [{**TEXT, "content": text}]}, [{"content": text * 1_000}])
    data = stored.serialize()
    assert StoredResponse.parse(data) == stored
    assert len(data) < len(text.encode(errors="surrogatepass")) * 1_300, "no escapes"
    assert len(data.splitlines()) == 2, "one line for each item, so that the writing thread can yield to the event loop"
