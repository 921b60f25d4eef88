"""`hedgerow.tool.v1.ToolService`: each collection of a tenant is a tool that searches it.

The tenant of a call is in the header that gateways send to every service (`x-hedgerow-tenant`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2 as pb
from services.cache.collections import validation
from services.cache.collections.collections import Collections
from services.cache.collections.documents import Hit, Ranking, Summary
from services.runtime.errors import InvalidInput, Missing
from services.runtime.rpc.authorization import TENANT_HEADER
from services.runtime.rpc.boundary import Call
from services.runtime.strict_json import loads

PREFIX = "search_"
_QUERY, _LIMIT = "query", "limit"
_NOTHING = "Nothing was found."
_PARAMETERS = json.dumps(
    {
        "type": "object",
        "properties": {
            _QUERY: {"type": "string", "description": "The search text: a question, or words."},
            _LIMIT: {
                "type": "integer",
                "minimum": 1,
                "maximum": validation.MAX_HITS,
                "description": "How many snippets to return, 5 where not given.",
            },
        },
        "required": [_QUERY],
        "additionalProperties": False,
    }
)


class ToolServicer:
    """The contract over collections. Results may be used again for `reusable_ms`."""

    def __init__(self, collections: Collections, reusable_ms: int):
        self._collections, self._reusable_ms = collections, reusable_ms

    async def ListTools(self, request: pb.ListToolsRequest, call: Call) -> pb.ListToolsResponse:
        listed = await self._collections.listed(_tenant(call))
        return pb.ListToolsResponse(tools=[self._described(each) for each in listed])

    async def CallTool(self, request: pb.CallToolRequest, call: Call) -> pb.CallToolResponse:
        tenant = _tenant(call)
        if not request.name.startswith(PREFIX):
            raise Missing(f"tool: there is no {request.name}")
        name = validation.check_name(request.name.removeprefix(PREFIX))
        try:
            question, count = _arguments(request.arguments)
        except InvalidInput as error:
            return pb.CallToolResponse(failed=True, content=error.message)
        found = await self._collections.search(tenant, name, question, count, Ranking.BOTH, call.deadline)
        call.span.set_attribute("hedgerow.collection.hits", len(found.hits))
        call.span.set_attribute("hedgerow.collection.words_only", found.words_only)
        return pb.CallToolResponse(content=content(found.hits), citations=map(_citation, found.hits))

    def _described(self, collection: Summary) -> pb.ToolDescription:
        about = f": {collection.description}" if collection.description else ""
        tool = chat_pb2.Tool(
            name=f"{PREFIX}{collection.name}",
            description=f"Searches the documents of the collection {collection.name}{about}",
            parameters=_PARAMETERS,
        )
        return pb.ToolDescription(tool=tool, idempotent=True, reusable_ms=self._reusable_ms, question_argument=_QUERY)


def content(hits: Sequence[Hit]) -> str:
    """Search results as text for a model: each snippet under its number and its source."""
    return "\n\n".join(f"[{number}] {_place(hit)}\n{hit.text}" for number, hit in enumerate(hits, 1)) or _NOTHING


def _place(hit: Hit) -> str:
    return f"{hit.source} ({hit.title})" if hit.title else hit.source


def _citation(hit: Hit) -> pb.Citation:
    return pb.Citation(source=hit.source, title=hit.title, text=hit.text, score=hit.score)


def _tenant(call: Call) -> str:
    tenant = unquote(call.header(TENANT_HEADER) or "")
    if not tenant:
        raise InvalidInput(TENANT_HEADER, "at least 1 character", "none")
    return tenant


def _arguments(text: str) -> tuple[str, int]:
    """(query, limit). Raises `InvalidInput` with words that a model can go by."""
    try:
        given: Any = loads(text)
    except ValueError as error:
        raise InvalidInput("arguments", "JSON", error) from None
    if not isinstance(given, dict):
        raise InvalidInput("arguments", "a JSON object", type(given).__name__)
    if unknown := sorted(set(given) - {_QUERY, _LIMIT}):
        raise InvalidInput("arguments", f"{_QUERY} and {_LIMIT}", ", ".join(unknown))
    query, limit = given.get(_QUERY), given.get(_LIMIT, 0)
    if not isinstance(query, str):
        raise InvalidInput(_QUERY, "a string", type(query).__name__)
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidInput(_LIMIT, "an integer", type(limit).__name__)
    return validation.check_question(_QUERY, query), validation.check_limit(_LIMIT, limit)
