"""Answers, written as OpenAI's chat completions: strict clients parse them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from prometheus_client import REGISTRY

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.chat_answer import ChatWriter
from services.gateway.http.request_options import RequestOptions

FINAL = pb.Final(
    text="Hello you",
    finish_reason=chat_pb2.FINISH_REASON_STOP,
    model="m",
    usage=chat_pb2.Usage(prompt_tokens=3, completion_tokens=2),
    trace_id="0" * 32,
    budget_ms=1000,
    cache=pb.CacheReport(verdict=pb.CACHE_VERDICT_MISS),
)


def writer(*, usage: bool = False) -> ChatWriter:
    return ChatWriter(RequestOptions(pb.GenerateRequest(), "auto", stream=True, usage=usage), "id1")


def chunks(data: bytes) -> list[dict[str, Any]]:
    """The events that a client reads. Each is one line of data; the last one is the end."""
    assert data.endswith(b"data: [DONE]\n\n")
    events = data.decode().split("\n\n")[:-2]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    found = [json.loads(event.removeprefix("data: ")) for event in events]
    for chunk in found:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    return found


def streamed(*events: pb.Event, final: pb.Final = FINAL, usage: bool = False) -> list[dict[str, Any]]:
    writing = writer(usage=usage)
    return chunks(b"".join(map(writing.chunk, events)) + writing.end(final))


def delta(text: str, **more: Any) -> pb.Event:
    return pb.Event(delta=pb.TextDelta(text=text, **more))


def test_a_stream_begins_with_the_role_and_ends_with_the_finish_and_the_account() -> None:
    first, *texts, last = streamed(delta("Hello"), delta(" \u2028“you”"))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"]["content"] for chunk in texts] == ["Hello", " \u2028“you”"]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["hedgerow"]["cache"] == {"verdict": "miss"}
    assert {chunk["id"] for chunk in (first, *texts, last)} == {"chatcmpl-id1"}
    assert "usage" not in first


def test_usage_comes_last_and_only_where_it_is_wanted() -> None:
    *others, finish, last = streamed(delta("Hello"), usage=True)
    assert all(chunk["usage"] is None for chunk in (*others, finish))
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 5)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert "hedgerow" in last
    assert "hedgerow" not in finish


def test_events_without_text_are_not_in_the_stream() -> None:
    assert writer().chunk(pb.Event(stage=pb.Stage(name="cache"))) == b""
    assert writer().chunk(pb.Event(accepted=pb.Accepted())) == b""


def test_a_tool_call_has_its_name_in_the_first_delta_alone() -> None:
    begun = pb.Event(tool_call=chat_pb2.ToolCallDelta(index=1, id="c", name="add", arguments="{"))
    more = pb.Event(tool_call=chat_pb2.ToolCallDelta(index=1, arguments="}"))
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_TOOL_CALLS)
    _, first, second, last = streamed(begun, more, final=final)
    assert first["choices"][0]["delta"]["tool_calls"] == [
        {"index": 1, "id": "c", "type": "function", "function": {"name": "add", "arguments": "{"}}
    ]
    assert second["choices"][0]["delta"]["tool_calls"] == [{"index": 1, "function": {"arguments": "}"}}]
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_log_probabilities_travel_with_their_text() -> None:
    token = chat_pb2.TokenLogprob(token="Hi", bytes=b"Hi", logprob=-0.5)
    token.top.add(token="Ho", bytes=b"Ho", logprob=-1.5)
    _, text, _ = streamed(delta("Hi", logprobs=[token]))
    assert text["choices"][0]["logprobs"]["content"] == [
        {
            "token": "Hi",
            "logprob": -0.5,
            "bytes": [72, 105],
            "top_logprobs": [{"token": "Ho", "logprob": -1.5, "bytes": [72, 111]}],
        }
    ]


def test_reasoning_is_beside_the_text() -> None:
    first, thought, last = streamed(pb.Event(reasoning=pb.ReasoningDelta(text="hm")))
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert thought["choices"][0]["delta"] == {"reasoning_content": "hm"}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("STOP", "stop"), ("LENGTH", "length"), ("BUDGET", "length"), ("CONTENT_FILTER", "content_filter")],
)
def test_a_finish_is_one_that_clients_know(reason: str, finish: str) -> None:
    final = pb.Final(text="Hi", model="m", finish_reason=chat_pb2.FinishReason.Value(f"FINISH_REASON_{reason}"))
    body = writer().whole(final)
    parsed = ChatCompletion.model_validate(body, strict=True)
    assert (parsed.choices[0].message.content, parsed.model) == ("Hi", "m")
    assert body["choices"][0]["finish_reason"] == finish
    assert body["hedgerow"]["finish_reason"] == reason.lower()


def test_tool_calls_come_without_text() -> None:
    call = chat_pb2.ToolCall(id="c", name="add", arguments="{}")
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_TOOL_CALLS, tool_calls=[call], reasoning="hm")
    body = writer().whole(final)
    message = ChatCompletion.model_validate(body, strict=True).choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "add"  # type: ignore[union-attr]
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"


def test_the_gateways_chunks_after_the_providers_have_its_id_and_model() -> None:
    about_prompt = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    said = {"id": "c7", "object": "chat.completion.chunk", "created": 7, "model": "gpt"}
    said |= {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}}]}
    writing = writer()
    for each in (about_prompt, said):
        assert writing.chunk(pb.Event(relayed=pb.Relayed(events=[json.dumps(each).encode()])))
    text, last = chunks(writing.chunk(delta(" you")) + writing.end(FINAL))
    assert {(each["id"], each["model"]) for each in (text, last)} == {("c7", "gpt")}
    assert text["choices"][0]["delta"] == {"content": " you"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("wanted", "index", "given", "degraded"),
    [(3, None, 1, ["llm:choices"]), (2, None, 2, []), (1, None, 1, []), (3, 2, 1, [])],
    ids=["ignored", "all", "one", "one of several that were asked separately"],
)
def test_an_answer_of_a_server_that_ignored_n_is_degraded(
    stream: bool, wanted: int, index: int | None, given: int, degraded: list[str]
) -> None:
    final = pb.Final()
    final.CopyFrom(FINAL)
    before = _counted()
    writing = ChatWriter(RequestOptions(pb.GenerateRequest(), "auto", choices=wanted), "id1", index)
    said = [
        {"id": "c", "choices": [{"index": each, "delta": {"content": "Hi"}, "finish_reason": finish}]}
        for each in range(given)
        for finish in (None, "stop")
    ]
    relayed = pb.Event(relayed=pb.Relayed(events=[json.dumps(each).encode() for each in said]))
    if stream:
        assert (writing.chunk(relayed) + writing.end(final)).endswith(b"data: [DONE]\n\n")
    else:
        writing.gather(relayed)
        assert writing.whole(final)["hedgerow"]["degraded"] == degraded
    assert list(final.degraded) == degraded
    assert _counted() - before == len(degraded)


def _counted() -> float:
    return REGISTRY.get_sample_value("hedgerow_degraded_total", {"reason": "llm:choices"}) or 0
