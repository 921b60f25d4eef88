"""Bodies of many objects are parsed and read beside the event loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.generating import Dialect, Generating
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions


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
