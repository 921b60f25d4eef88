"""Bodies of many objects are read, and answers of many objects written, beside the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.endpoints import several
from services.gateway.http.endpoints.generating import Dialect, Generating, ReadRequest
from services.gateway.http.endpoints.several import Several
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions
from services.gateway.http.stored_responses.store import StoredResponse
from services.runtime import strict_json
from services.runtime.strict_json import compact, in_steps


@pytest.mark.parametrize(("text", "items", "large"), [("m", 10, False), ("m" * 200_000, 1, False), ("m", 2_000, True)])
async def test_the_body_of_a_chat_is_parsed_and_read_beside_the_event_loop_where_it_has_many_objects(
    text: str, items: int, large: bool
) -> None:
    threads = list[int]()

    def parsed(data: bytes) -> Fields:
        threads.append(threading.get_ident())
        return Fields(json.loads(data))

    def read(body: Fields, headers: Mapping[str, str], known: Collection[str], most: int = 1) -> RequestOptions:
        threads.append(threading.get_ident())
        return RequestOptions(pb.GenerateRequest(model=body.needed("model")))

    async def body() -> bytes:
        return json.dumps({"model": text, "messages": [{}] * items}).encode()

    credential = SimpleNamespace(tenant=SimpleNamespace(name="acme"))
    exchange = SimpleNamespace(json=body, parsed=parsed, headers={}, answer_id="id1", credential=credential)
    settings = SimpleNamespace(chat_models=["m"], max_messages=1)
    dialect = Dialect(read, cast(Any, lambda order, answer_id: None), cast(Any, None))
    asked = await Generating(dialect, cast(Any, None), cast(Any, settings))._asked(cast(Any, exchange))
    assert asked.order.request.model == text
    assert len(threads) == 2
    assert (threading.get_ident() not in threads) is large


@pytest.mark.parametrize(("tokens", "large"), [(100, False), (1_000, True)])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_end_of_an_answer_is_written_beside_the_event_loop_where_it_has_many_log_probabilities(
    stream: bool, tokens: int, large: bool
) -> None:
    threads, tenant = list[int](), SimpleNamespace(name="acme")

    def written(final: pb.Final) -> bytes | dict[str, str]:
        threads.append(threading.get_ident())
        return b"data: {}" if stream else {}

    exchange: Any = SimpleNamespace(reply=AsyncMock(status=200), credential=SimpleNamespace(tenant=tenant))
    asked = ReadRequest(
        b"", RequestOptions(pb.GenerateRequest()), Mock(chunk=lambda _: b"", end=written, whole=written)
    )
    generating = Generating(*[cast(Any, None)] * 3)
    token = chat_pb2.TokenLogprob(token="a", top=[chat_pb2.TokenLogprob(token="a")])
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP, text="a" * tokens, logprobs=[token] * tokens)
    message = pb.GenerateResponse(events=[pb.Event(final=final)])
    await (generating._write if stream else generating._gather)(exchange, asked, Mock(), message)
    assert len(threads) == 1
    assert (threading.get_ident() not in threads) is large


@pytest.mark.parametrize(("tokens", "large"), [(100, False), (1_000, True)])
async def test_several_answers_in_one_piece_are_written_beside_the_event_loop_where_they_are_large(
    tokens: int, large: bool
) -> None:
    threads = list[int]()

    def whole(final: pb.Final) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"choices": [final.text]}

    async def answer_choices(choices: Any, call: Any, take: Any) -> None:
        for index, text in enumerate("ab"):
            final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP, text=text)
            final.logprobs.extend([chat_pb2.TokenLogprob(token="a")] * tokens)
            await take(pb.GenerateResponse(events=[pb.Event(final=final)]), index)

    reply, tenant = AsyncMock(status=0), SimpleNamespace(name="acme")
    exchange: Any = SimpleNamespace(reply=reply, answer_id="1", credential=SimpleNamespace(tenant=tenant))
    order, nothing = RequestOptions(pb.GenerateRequest(), choices=2), cast(Any, None)
    dialect = Dialect(nothing, nothing, nothing, choose=lambda *_: Mock(whole=whole))
    generating = Generating(dialect, cast(Any, Mock(answer_choices=answer_choices)), nothing)
    await generating._answer_several(exchange, ReadRequest(b"", order, Mock()), Mock(), nothing, nothing)
    assert json.loads(reply.whole.call_args.args[1])["choices"] == ["a", "b"]
    assert len(threads) == 2
    assert (threading.get_ident() not in threads) is large


@pytest.mark.parametrize("stream", [False, True])
async def test_many_events_of_one_of_several_answers_are_written_in_steps(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = list[str]()

    async def give_way(tenant: str) -> None:
        turns.append(tenant)

    monkeypatch.setattr(several, "give_way", give_way)
    order = RequestOptions(pb.GenerateRequest(), choices=2, stream=stream)
    writers = [Mock(chunk=lambda event: event.delta.text.encode()) for _ in range(2)]
    send = AsyncMock()
    answers = Several(order, writers, send, Mock(), Mock(), "acme")
    events = [pb.Event(delta=pb.TextDelta(text="a" * 1_000))] * 100
    await answers.take(0, pb.GenerateResponse(events=events))
    assert 5 <= len(turns) <= 7
    assert send.call_args == (((b"a" * 100_000, False),) if stream else None)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were written in one go, which nothing interrupts."""
    written, encode, dumps = list[str](), strict_json._ENCODER.encode, json.dumps

    def noted(value: object, **options: Any) -> str:
        written.append(dumps(value, **options) if options else encode(value))
        return written[-1]

    monkeypatch.setattr(strict_json, "_ENCODER", SimpleNamespace(encode=noted))
    monkeypatch.setattr(json, "dumps", noted)
    return written


def test_a_large_value_is_written_piece_by_piece(pieces: list[str]) -> None:
    tokens = [{"token": "a", "top_logprobs": [{"token": "é", "logprob": -0.5}]}] * 1_000
    value = {"choices": [{"index": 0, "logprobs": {"content": tokens}, "text": None}], "usage": {}, "empty": []}
    written = in_steps(value)
    assert max(map(len, pieces)) < 100
    assert written == compact(value)


@pytest.mark.parametrize("relayed", [False, True])
def test_a_response_with_many_log_probabilities_is_written_and_stored_piece_by_piece(
    relayed: bool, pieces: list[str]
) -> None:
    token = chat_pb2.TokenLogprob(token="a", top=[chat_pb2.TokenLogprob(token="a")])
    writer = ResponseWriter(RequestOptions(pb.GenerateRequest(), stored={"store": True}), "1" * 16)
    if relayed:
        part = {"type": "output_text", "text": "a", "logprobs": [{"token": "a"}] * 1_000}
        item = {"type": "message", "id": "msg_" + "1" * 16, "content": [part]}
        event = {"type": "response.completed", "response": {"id": "resp_1", "output": [item]}}
        last = pb.Event(relayed=pb.Relayed(events=[compact(event)]))
        pieces.clear()
        writer.chunk(last)
    else:
        writer.chunk(pb.Event(delta=pb.TextDelta(text="a", logprobs=[token] * 1_000)))
        pieces.clear()
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP, text="a", logprobs=[token] * 1_000)
    ended = writer.end(final)
    stored = StoredResponse(writer.whole(final), [])
    assert StoredResponse.parse(stored.serialize()) == stored
    assert [*stored.items] == stored.item_ids
    assert len(stored.item_ids) == 1
    assert max(map(len, pieces)) < 1_000
    assert b'"type":"response.completed"' in ended
