"""A provider's own events, on their way to a client of the same API."""

from __future__ import annotations

import json
from typing import Any

from services.gateway.http import relayed_chat, relayed_messages
from services.gateway.http.relayed_chat import RelayedChat


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": index, "delta": delta, **more}]}


def test_chunks_make_one_completion_with_all_their_fields() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    logprob = {"token": "a", "logprob": -0.1}
    whole = relayed_chat.merged(
        [
            chunk({"role": "assistant", "content": "To"}, logprobs={"content": [logprob]}),
            chunk({"content": "kyo", "tool_calls": [call]}, logprobs={"content": [logprob]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}, index=0),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}], "field_of_tomorrow": {"a": "x"}}),
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "service_tier": None},
            {"id": "c", "choices": [], "usage": {"total_tokens": 3}, "system_fingerprint": "fp"},
        ]
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


def test_what_a_server_says_again_in_each_chunk_is_said_once() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{"}}
    more = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "}"}}
    whole = relayed_chat.merged([chunk({"role": "assistant", "tool_calls": [each]}) for each in (call, more)])
    (made,) = whole["choices"][0]["message"]["tool_calls"]
    assert made == {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_several_choices_stay_apart() -> None:
    whole = relayed_chat.merged([chunk({"content": "b"}, index=1), chunk({"content": "a"}), chunk({"content": "a"})])
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["aa", "b"]


def test_a_stream_that_said_nothing_after_its_finish_ends_with_the_account() -> None:
    relayed = RelayedChat(usage=True)
    last = json.dumps({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode()
    assert relayed.chunks([json.dumps(chunk({"content": "a"})).encode()]).startswith(b"data: ")
    assert not relayed.ended
    assert relayed.chunks([last]) == b""
    told, done = relayed.end({"model": "m"}).strip().split(b"\n\n")
    assert json.loads(told.removeprefix(b"data: "))["hedgerow"] == {"model": "m"}
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
        told = relayed.end({}).split(b"\n\n")
        assert [b"usage" in each for each in told] == [False, *([True] if usage else []), False, False, False]
        assert told[:-3] == [b"data: " + each for each in ((ended, used) if usage else (ended,))]


def test_events_make_one_message_with_all_their_fields() -> None:
    message = relayed_messages.merged(
        [
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "input": {}}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ":1}"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "a"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"c": 1}}},
            {"type": "content_block_start", "index": 2, "content_block": {"type": "tomorrow"}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "tomorrow_delta", "seen": 7}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
    )
    assert message["content"] == [
        {"type": "tool_use", "id": "t", "input": {"a": 1}},
        {"type": "text", "text": "ab", "citations": [{"c": 1}]},
        {"type": "tomorrow", "seen": 7},
    ]
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert message["stop_reason"] == "tool_use"


def test_events_without_an_end_make_no_message() -> None:
    assert relayed_messages.merged([{"type": "message_start", "message": {"id": "m"}}]) == {}
