"""Requests of Responses as callers write them, beside those that `test_published.py` makes of the published schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.unchanged.shapes import FUNCTION, PIXEL, TEXTS, WEATHER, Shape, user

_SYSTEM = "You are a careful assistant.\n\n# Rules\n- Answer in one line.\n" + "- Never guess.\n" * 200 + "   "
_FORM = {"type": "json_schema", "name": "city_facts", "description": "Facts.", "strict": True, "schema": WEATHER}


_SEEN = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "low"}
_TEXT = {"type": "input_text", "text": "?"}
_PARTS: Mapping[str, Any] = {
    "text": _TEXT,
    "picture by URL": {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "high"},
    "part of tomorrow": {"type": "input_hologram", "hologram": "x"},
}
_FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city": "Tokyo"}',
    "status": "completed",
}
_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Tokyo, so the tool."}],
    "encrypted_content": "gAAAAABo",
}
_SPOKEN = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "A moment.", "annotations": [], "logprobs": []}],
}


def _result(output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "call_1", "output": output}


_ITEMS: Mapping[str, Any] = {  # each stands between two questions
    "assistant in short": [{"role": "assistant", "content": "Hi!"}],
    "assistant": [_SPOKEN],
    "refusal": [{**_SPOKEN, "content": [{"type": "refusal", "refusal": "No."}]}],
    "thought": [_REASONING, _SPOKEN],
    "thought in words": [{**_REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]}],
    "tool loop": [_REASONING, _FUNCTION_CALL, _result('{"c": 21.50}')],
    "result in parts": [_FUNCTION_CALL, _result([{"type": "input_text", "text": "21"}, _SEEN])],
    "result of a call that the provider keeps": [_result("21")],
    "reference": [{"type": "item_reference", "id": "msg_1"}],
    "item of tomorrow": [{"type": "dream", "of": ["sheep", {"electric": True}]}],
}
_SEARCH = {"type": "web_search", "user_location": {"type": "approximate", "country": "JP"}}
_OWN_TOOL = {"type": "function", **FUNCTION}


def _input(*items: Any, **more: Any) -> dict[str, Any]:
    return {"input": [user("Hi"), *items, user("?")], **more}


RESPONSES: dict[str, Shape] = {
    **{f"text {name}": {"input": text} for name, text in TEXTS.items()},
    "field of tomorrow": {"input": "?", "top_k": 40, "field_of_tomorrow": {"nested": [1, {"deep": True}]}},
    **{f"part {name}": {"input": [user([_TEXT, part])]} for name, part in _PARTS.items()},
    **{f"part {name} alone": {"input": [user([part])]} for name, part in _PARTS.items()},
    **{f"item {name}": _input(*items) for name, items in _ITEMS.items()},
    **{f"item {name} last": {"input": [user("Hi"), *items]} for name, items in _ITEMS.items()},
    "instructions": {"instructions": _SYSTEM, "input": "3?"},
    "developer": {"input": [{"role": "developer", "content": "Be brief."}, user("3?")]},
    "developer last": {"input": [user("3?"), {"role": "developer", "content": "Be brief."}]},
    "instructions and developer": {"instructions": "a", "input": [{"role": "developer", "content": "b"}, user("3?")]},
    "blank question": {"input": ""},
    "blank answer": {"input": [user("Hi"), {"role": "assistant", "content": []}, user("?")]},
    "blank turns": {"input": [user([]), {"role": "assistant", "content": " "}, user("?")]},
    "typed message": {"input": [{"type": "message", **user([_TEXT])}]},
    "nothing but what is kept": {"input": [], "conversation": "conv_1"},
    "a prompt alone": {"prompt": {"id": "pmpt_1"}},
    "a conversation alone": {"conversation": "conv_1"},
    "null beside text": {"input": "?", "temperature": None, "tools": None, "store": None},
    "text format": {"input": "?", "text": {"format": {"type": "text"}}},
    "json object": {"input": "JSON?", "text": {"format": {"type": "json_object"}}},
    "schema": {"input": "?", "text": {"format": _FORM, "verbosity": "low"}},
    "tool": {"input": "?", "tools": [_OWN_TOOL]},
    "tool forced": {"input": "?", "tools": [_OWN_TOOL], "tool_choice": {"type": "function", "name": "weather"}},
    "tool required": {"input": "?", "tools": [_OWN_TOOL], "tool_choice": "required"},
    "tool required beside a form": {
        **{"input": "?", "tools": [_OWN_TOOL], "tool_choice": "required"},
        "text": {"format": _FORM},
    },
    "one tool at a time": {"input": "?", "tools": [_OWN_TOOL], "parallel_tool_calls": False},
    "tools of both kinds": {"input": "?", "tools": [_OWN_TOOL, _SEARCH]},
    "server tool forced": {
        "input": "?",
        "tools": [_SEARCH, _OWN_TOOL],
        "tool_choice": {"type": "web_search"},
    },
    "server tool required": {"input": "?", "tools": [_SEARCH], "tool_choice": "required"},
    "allowed tools": {
        "input": "?",
        "tools": [_OWN_TOOL],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    },
    "stream": {"input": "?", "stream": True},
    "stream options": {"input": "?", "stream": True, "stream_options": {"include_obfuscation": False}},
}
