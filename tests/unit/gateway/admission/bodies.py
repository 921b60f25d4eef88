"""Requests by OpenAI's and Anthropic's APIs, as the gateway reads them."""

from __future__ import annotations

import json
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import original
from services.gateway.http.fields import Fields

HELLO = {"role": "user", "content": "Hi"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def part(**given: Any) -> dict[str, Any]:
    """A body whose only message has this part."""
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, given]}]}


def chat(**body: Any) -> pb.GenerateRequest:
    data = {"model": "m", "messages": [HELLO], **body}
    fields = Fields(data)
    request = read_chat(fields, {}, {"m"}).request
    request.original.CopyFrom(original(chat_pb2.API_CHAT_COMPLETIONS, json.dumps(data).encode(), fields, {}))
    return request


def messages(**body: Any) -> pb.GenerateRequest:
    data = {"model": "m", "max_tokens": 9, "messages": [HELLO], **body}
    fields = Fields(data)
    request = read_messages(fields, {}, {"m"}).request
    request.original.CopyFrom(original(chat_pb2.API_MESSAGES, json.dumps(data).encode(), fields, {}))
    return request
