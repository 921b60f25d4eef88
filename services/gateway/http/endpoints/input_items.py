"""The items that a response was asked with, in pages, in the form in which OpenAI's API lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.runtime.errors import InvalidInput

_PAGE, _LARGEST_PAGE = 20, 100
_ORDERS = ("asc", "desc")
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def page(items: Sequence[Mapping[str, Any]], response_id: str, query: Mapping[str, str]) -> dict[str, Any]:
    """A page as `limit`, `order` and `after` of the query ask for it. Raises `InvalidInput`."""
    limit, order, after = query.get("limit", str(_PAGE)), query.get("order", "desc"), query.get("after")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _LARGEST_PAGE):
        raise InvalidInput("limit", f"1 to {_LARGEST_PAGE}", limit)
    if order not in _ORDERS:
        raise InvalidInput("order", f"one of {', '.join(_ORDERS)}", order)
    listed = [_listed(item, f"{response_id.removeprefix('resp_')}_{index}") for index, item in enumerate(items)]
    if order == "desc":
        listed.reverse()
    if after is not None:
        places = [place for place, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise InvalidInput("after", "the id of one of the items", after)
        listed = listed[places[0] + 1 :]
    data = listed[: int(limit)]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": "", "last_id": ""}
    return {"object": "list", "data": data, **ends, "has_more": len(data) < len(listed)}


def _listed(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An item with the fields that OpenAI's API adds to it. `name`: the end of its id where it has none."""
    kind = item.get("type") or "message"
    listed = {**item, "type": kind, "id": item.get("id") or f"{_PREFIXES.get(kind, 'item')}_{name}"}
    if kind != "reasoning":
        listed["status"] = item.get("status") or "completed"
    if kind == "message":
        listed["content"] = [_part(part, item.get("role")) for part in _parts(item.get("content"))]
    return listed


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _part(part: Mapping[str, Any], role: Any) -> dict[str, Any]:
    """A part as its role has it: an assistant's texts are output."""
    if role == "assistant" and "text" in part:
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    if part.get("type") == "text":
        return {**part, "type": "input_text"}
    return {"detail": "auto", **part} if part.get("type") == "input_image" else dict(part)
