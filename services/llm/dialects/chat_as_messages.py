"""OpenAI's chat completions as requests to Anthropic's Messages, read from the caller's own body: marks of the prompt
cache, documents, pictures by URL and thoughts, for which the contract has no place.

The fields are those of LiteLLM 1.110 (`anthropic_messages_pt` and `anthropic_process_openai_file_message` in its
`litellm_core_utils/prompt_templates/factory.py`): `cache_control` of the request, of messages, parts and tools; parts
of type `file` and `document`; `thinking`, and `thinking_blocks` of an assistant's message. The blocks:
https://docs.claude.com/en/api/messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.llm.dialects.anthropic_request import conversation_of, text_block, to_id, to_use
from services.llm.dialects.documents import from_file, source
from services.llm.dialects.forwarding import conversation, fields
from services.llm.engine import Original, ToolCall
from services.runtime.errors import InvalidInput

API = "chat_completions"
_PLACE = re.compile(r"messages\[\d+\]\.(thinking_blocks|(content\[\d+\]))")
_KINDS = ("file", "document", "image_url")  # of parts; the last one by URL
_MARK = "cache_control"
_TEXTS = ("text", "input_text", "output_text")


def takes(original: Original, place: str, given: str, *, sees: bool = True) -> bool:
    """Whether a field that the contract lacks is translated here. `given`: its JSON; `sees`: whether the model takes
    pictures."""
    found = _PLACE.fullmatch(place)
    if original.api != API or (found is None and place not in ("thinking", _MARK)):
        return False
    if not (found and found[2]):
        return True
    kind = json.loads(given).get("type")
    return kind in _KINDS and (sees or kind != "image_url")


def with_own(body: dict[str, Any], original: Original) -> dict[str, Any]:
    """The `body` of a chat completion with what the contract lacks. Raises InvalidInput for what has no counterpart. A
    conversation that a policy has changed is the gateway's, and has none of it."""
    own, said = fields(original.body), dict(body)
    if "messages" in own:
        said |= conversation_of(_message(index, each) for index, each in enumerate(conversation(own)))
    if "tools" in own and body.get("tools"):
        marks = [_mark(each) or _mark(each.get("function") or {}) for each in json.loads(bytes(own["tools"]))]
        said["tools"] = [{**tool, **mark} for tool, mark in zip(body["tools"], marks, strict=False)]
    if thinking := thinks(original):
        said.pop("thinking", None)
        said |= {"thinking": thinking} if _may_think(said["messages"]) else {}
    return {**said, **_mark(own)}


def _may_think(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the model may think: not in the middle of a turn whose thoughts the conversation lacks, which the API
    would refuse."""
    results = any(block["type"] == "tool_result" for block in turns[-1]["content"]) if turns else False
    return not results or (len(turns) > 1 and str(turns[-2]["content"][0]["type"]).endswith("thinking"))


def thinks(original: Original | None) -> dict[str, Any] | None:
    """The caller's `thinking`; None where it says nothing."""
    given = original.untranslated.get("thinking") if original and original.api == API else None
    thinking = json.loads(given) if given else None
    return thinking if isinstance(thinking, dict) else None


def _message(index: int, message: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The role and the blocks."""
    where, role, content = f"messages[{index}]", message.get("role"), message.get("content") or message.get("refusal")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    blocks = [block for number, part in enumerate(parts) if (block := _block(f"{where}.content[{number}]", part))]
    if role == "tool":
        result = {"type": "tool_result", "tool_use_id": to_id(str(message.get("tool_call_id")))}
        blocks = [result | ({"content": blocks} if blocks else {})]
    blocks += [to_use(f"{where}.tool_calls[{number}]", _call(each)) for number, each in _listed(message, "tool_calls")]
    if blocks and (mark := _mark(message)):
        blocks[-1] = {**blocks[-1], **mark}
    thoughts = [each for _, each in _listed(message, "thinking_blocks") if isinstance(each, dict) and "type" in each]
    return "system" if role == "developer" else str(role), [*thoughts, *blocks]


def _listed(message: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    given = message.get(name)
    return ((number, each) for number, each in enumerate(given if isinstance(given, list) else ()))


def _call(given: Mapping[str, Any]) -> ToolCall:
    function = given.get("function") or {}
    return ToolCall(str(given.get("id")), str(function.get("name")), function.get("arguments") or "")


def _mark(given: Mapping[str, Any]) -> dict[str, Any]:
    return {_MARK: given[_MARK]} if isinstance(given.get(_MARK), dict) else {}


def _block(where: str, part: Mapping[str, Any]) -> dict[str, Any] | None:
    """A block of a part; None for a blank text, which the API refuses, and for a thought that it did not sign."""
    kind = part.get("type")
    if kind == "thinking":
        return None
    if kind in _TEXTS or kind == "refusal":
        text = str(part.get("text") or part.get("refusal") or "")
        return {**text_block(text), **_mark(part)} if text and not text.isspace() else None
    if kind == "image_url":
        given = part.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        return {"type": "image", "source": source(f"{where}.image_url", str(url)), **_mark(part)}
    if kind == "file":
        return {**from_file(f"{where}.file", part.get("file")), **_mark(part)}
    if kind == "document":
        return dict(part)
    raise InvalidInput(where, "a text, a picture, a file or a document", str(kind))
