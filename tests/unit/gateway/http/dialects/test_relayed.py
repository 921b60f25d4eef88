"""A provider's own events, on their way to a client of the same API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from services.gateway.http.dialects.chat_relay import GrowingCompletion, RelayedChat
from services.gateway.http.dialects.messages_relay import GrowingMessage


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": index, "delta": delta, **more}]}


def made_of(whole: GrowingCompletion | GrowingMessage, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for event in events:
        whole.add(event)
    return whole.whole()


def test_chunks_make_one_completion_with_all_their_fields() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    logprob = {"token": "a", "logprob": -0.1}
    whole = made_of(
        GrowingCompletion(),
        [
            chunk({"role": "assistant", "content": "To"}, logprobs={"content": [logprob]}),
            chunk({"content": "kyo", "tool_calls": [call]}, logprobs={"content": [logprob]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}, index=0),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}], "field_of_tomorrow": {"a": "x"}}),
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "service_tier": None},
            {"id": "c", "choices": [], "usage": {"total_tokens": 3}, "system_fingerprint": "fp"},
        ],
    )
    (choice,) = whole["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Tokyo",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}],
        "field_of_tomorrow": {"a": "x"},
    }
    assert choice["logprobs"] == {"content": [logprob, logprob]}
    assert (choice["finish_reason"], whole["usage"]) == ("tool_calls", {"total_tokens": 3})
    assert (whole["object"], whole["system_fingerprint"]) == ("chat.completion", "fp")


def test_fields_repeated_in_each_chunk_are_merged_once() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{"}}
    more = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "}"}}
    whole = made_of(GrowingCompletion(), [chunk({"role": "assistant", "tool_calls": [each]}) for each in (call, more)])
    (made,) = whole["choices"][0]["message"]["tool_calls"]
    assert made == {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_fields_that_a_choice_has_in_several_chunks_are_those_of_the_last() -> None:
    safe, low = ({"hate": {"filtered": False, "severity": each}} for each in ("safe", "low"))
    pieces = [
        {**chunk({"content": "To"}, content_filter_results=safe, finish_reason=None), "model": "m"},
        chunk({"content": "kyo"}, content_filter_results=safe, finish_reason="stop"),
        {"id": "", "model": "", "choices": [{"index": 0, "finish_reason": None, "content_filter_results": low}]},
        chunk({"content": ""}, finish_reason="stop"),
    ]
    whole = made_of(GrowingCompletion(), pieces)
    (choice,) = whole["choices"]
    assert (choice["message"], choice["finish_reason"]) == ({"content": "Tokyo"}, "stop")
    assert (choice["content_filter_results"], whole["id"], whole["model"]) == (low, "c", "m")


def test_thoughts_of_two_types_with_one_index_stay_apart() -> None:
    text = {"type": "reasoning.text", "format": "google-gemini-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "eA==", "format": "google-gemini-v1", "index": 0}
    thoughts = [{**text, "text": "I "}, {**text, "text": "think."}, sealed]
    pieces = [chunk({"reasoning_details": [thought], "channel": "analysis"}) for thought in thoughts]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["reasoning_details"] == [{**text, "text": "I think."}, sealed]
    assert choice["message"]["channel"] == "analysis"


@pytest.mark.parametrize(
    ("second", "arguments"),
    [
        ({"id": "b", "function": {"name": "weather", "arguments": "{}"}}, ["{}", "{}"]),  # Gemini
        ({"id": "b", "function": {"name": None, "arguments": "}"}}, ["{}}"]),  # vLLM 0.8 had an id of each piece
    ],
)
@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["one index", "none"])
def test_calls_with_one_index_are_separated_by_ids_with_names(
    second: dict[str, Any], arguments: list[str], index: dict[str, int]
) -> None:
    first = {**index, "id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    calls = [first, {**index, "type": "function", **second}]
    pieces = [*[chunk({"tool_calls": [each]}) for each in calls], chunk({}, finish_reason="tool_calls")]
    one_piece, stream = RelayedChat(usage=True), RelayedChat(usage=True)
    one_piece.gather(sent(*pieces))
    made = one_piece.whole()["choices"][0]["message"]["tool_calls"]
    assert [each["function"]["arguments"] for each in made] == arguments
    came = [json.loads(line[6:])["choices"][0]["delta"] for line in stream.chunks(sent(*pieces)).split(b"\n\n")[:-1]]
    indices = [each["index"] for delta in came for each in delta["tool_calls"]]
    assert indices == [0, len(arguments) - 1]


def test_thoughts_in_parts_and_then_a_text_alone_are_both_kept() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    pieces = [chunk({"role": "assistant", "content": [thought]}), chunk({"content": "To"}), chunk({"content": "kyo"})]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["content"] == [thought, {"type": "text", "text": "Tokyo"}]


def test_a_text_before_a_list_of_parts_is_kept() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    pieces = [chunk({"content": each}) for each in ("To", "ky", [reference], "o", ".")]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    texts = [{"type": "text", "text": each} for each in ("Toky", "o.")]
    assert choice["message"]["content"] == [texts[0], reference, texts[1]]


def test_several_choices_stay_apart() -> None:
    whole = made_of(
        GrowingCompletion(), [chunk({"content": "b"}, index=1), chunk({"content": "a"}), chunk({"content": "a"})]
    )
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["aa", "b"]


def test_a_stream_that_said_nothing_after_its_finish_ends_with_the_account() -> None:
    relayed = RelayedChat(usage=True)
    assert relayed.chunks(sent(chunk({"content": "a"}))).startswith(b"data: ")
    assert not relayed.ended
    assert relayed.chunks(sent(ENDED)) == b""
    report, done = relayed.end({"model": "m"}).strip().split(b"\n\n")
    assert json.loads(report.removeprefix(b"data: "))["hedgerow"] == {"model": "m"}
    assert done == b"data: [DONE]"


def sent(*chunks: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in chunks]


AZURE = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
ENDED = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USED = {"id": "c", "choices": [], "usage": {"total_tokens": 3}}


def test_a_chunk_about_the_prompt_alone_is_no_end() -> None:
    relayed, (prompt, text) = RelayedChat(usage=False), sent(AZURE, chunk({"content": "a"}))
    assert relayed.chunks([prompt]) == b"data: " + prompt + b"\n\n"
    assert not relayed.ended
    assert relayed.chunks([text]) == b"data: " + text + b"\n\n"
    assert relayed.same == {"id": "c"}


def test_usage_is_for_clients_that_ask_for_it_wherever_it_comes() -> None:
    for usage in (True, False):
        relayed, (used, ended, more) = RelayedChat(usage=usage), sent(USED, ENDED, {"id": "c", "citations": ["x"]})
        assert relayed.chunks([used]) == (b"data: " + used + b"\n\n" if usage else b"")
        assert relayed.chunks([ended, used, more]) == b""
        chunks = relayed.end({}).split(b"\n\n")
        assert [b"usage" in each for each in chunks] == [False, *([True] if usage else []), False, False, False]
        assert chunks[:-3] == [b"data: " + each for each in ((ended, used) if usage else (ended,))]


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"index": "b", "delta": {"content": "a"}}]},
        {"choices": [{"index": [], "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}, 7]}}]},
    ],
)
def test_chunks_that_make_no_completion_say_nothing(event: dict[str, Any]) -> None:
    relayed = RelayedChat(usage=True)
    relayed.gather(sent(chunk({"content": "a"}), event, event, ENDED))
    assert relayed.whole() == {}


def test_chunks_without_an_end_make_no_completion() -> None:
    relayed = RelayedChat(usage=True)
    relayed.gather(sent(chunk({"content": "a"})))
    assert relayed.whole() == {}
    relayed.gather(sent(ENDED))
    assert relayed.whole()["choices"][0]["finish_reason"] == "stop"


def test_sound_in_pieces_is_put_together_as_sound() -> None:
    pieces = [chunk({"audio": {"data": data}}) for data in ("eA==", "eXo=")]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["audio"]["data"] == "eHl6"


def test_choices_go_on_where_one_has_ended_and_are_ended_where_the_answer_is_cut() -> None:
    relayed = RelayedChat(usage=False)
    assert relayed.chunks(sent(chunk({"content": "a"}), chunk({"content": "b"}, 1), ENDED)).count(b"data: ") == 2
    assert b'"c"' in relayed.chunks(sent(chunk({"content": "c"}, 1)))
    assert (relayed.ended, relayed.unfinished(), relayed.held().count(b"stop")) == (False, [1], 1)
    relayed.chunks(sent({"id": "c", "choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}))
    assert relayed.ended
    assert relayed.end({}).count(b"finish_reason") == 2


@pytest.mark.parametrize("index", [[], {}, "x", None, 1.5], ids=repr)
def test_a_choice_whose_index_is_no_number_is_the_first_one(index: object) -> None:
    relayed = RelayedChat(usage=True)
    said = {"id": "c", "choices": [{"index": index, "delta": {"content": "a"}}]}
    assert relayed.chunks(sent(said)) == b"data: " + sent(said)[0] + b"\n\n"
    assert relayed.unfinished() == [0]
