"""Requests of Responses as callers write them: every field and every kind of item of the published schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.unchanged.shapes import TEXTS, Shape

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SYSTEM = "You are a careful assistant.\n\n# Rules\n- Answer in one line.\n" + "- Never guess.\n" * 200 + "   "
_WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_FUNCTION = {"name": "weather", "description": "The weather  now.", "parameters": _WEATHER, "strict": True}
_FORM = {"type": "json_schema", "name": "city_facts", "description": "Facts.", "strict": True, "schema": _WEATHER}
_RESPONSE_FIELDS: Mapping[str, Any] = {
    "temperature": 0.3,
    "top_p": 0.95,
    "max_output_tokens": 3_000,
    "max_tool_calls": 3,
    "top_logprobs": 2,
    "user": "user-7",
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"job": "7"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "hash",
    "service_tier": "auto",
    "store": False,
    "background": True,
    "truncation": "auto",
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "previous_response_id": "resp_1",
    "conversation": {"id": "conv_1"},
    "prompt": {"id": "pmpt_1", "variables": {"city": "Tokyo"}},
    "context_management": [{"type": "compaction", "compact_threshold": 9_000}],
    "text": {"verbosity": "low"},
    "parallel_tool_calls": False,
    "top_k": 40,
    "field_of_tomorrow": {"nested": [1, {"deep": True}]},
}


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


_SEEN = {"type": "input_image", "image_url": f"data:image/png;base64,{_PIXEL}", "detail": "low"}
_PARTS: Mapping[str, Any] = {
    "text": {"type": "input_text", "text": "?"},
    "picture by URL": {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "high"},
    "picture by file": {"type": "input_image", "file_id": "file_1", "detail": "auto"},
    "file": {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
    "file by id": {"type": "input_file", "file_id": "file_1"},
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
    "custom tool": [
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    ],
    "web search": [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}],
    "file search": [{"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["a"]}],
    "code interpreter": [
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "code": "1+1",
            "container_id": "c",
            "outputs": [],
            "status": "completed",
        }
    ],
    "image generation": [
        {"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo" * 200, "status": "completed"}
    ],
    "computer": [
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "c",
            "action": {"type": "screenshot"},
            "status": "completed",
            "pending_safety_checks": [],
        },
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{_PIXEL}"},
        },
    ],
    "shell": [
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "timeout_ms": 9}, "status": "completed"},
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ],
    "patch": [
        {
            "type": "apply_patch_call",
            "call_id": "c",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a"},
        },
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed", "output": "done"},
    ],
    "MCP": [
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "f", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "f", "arguments": "{}", "output": "x"},
    ],
    "reference": [{"type": "item_reference", "id": "msg_1"}],
    "compaction": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"}],
    "item of tomorrow": [{"type": "dream", "of": ["sheep", {"electric": True}]}],
}
_SERVER_TOOLS: Mapping[str, Any] = {
    "web search": {"type": "web_search", "user_location": {"type": "approximate", "country": "JP"}},
    "file search": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "code interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image generation": {"type": "image_generation", "partial_images": 1},
    "MCP": {"type": "mcp", "server_label": "s", "server_url": "https://example.org/mcp", "require_approval": "never"},
    "custom": {"type": "custom", "name": "sql", "format": {"type": "text"}},
    "local shell": {"type": "local_shell"},
}
_OWN_TOOL = {"type": "function", **_FUNCTION}


def _input(*items: Any, **more: Any) -> dict[str, Any]:
    return {"input": [_user("Hi"), *items, _user("?")], **more}


RESPONSES: dict[str, Shape] = {
    **{f"text {name}": {"input": text} for name, text in TEXTS.items()},
    **{f"field {name}": {"input": "?", name: given} for name, given in _RESPONSE_FIELDS.items()},
    **{f"part {name}": {"input": [_user([_PARTS["text"], part])]} for name, part in _PARTS.items()},
    **{f"part {name} alone": {"input": [_user([part])]} for name, part in _PARTS.items()},
    **{f"item {name}": _input(*items) for name, items in _ITEMS.items()},
    **{f"item {name} last": {"input": [_user("Hi"), *items]} for name, items in _ITEMS.items()},
    **{f"server tool {name}": {"input": "?", "tools": [tool]} for name, tool in _SERVER_TOOLS.items()},
    "instructions": {"instructions": _SYSTEM, "input": "3?"},
    "developer": {"input": [{"role": "developer", "content": "Be brief."}, _user("3?")]},
    "developer last": {"input": [_user("3?"), {"role": "developer", "content": "Be brief."}]},
    "instructions and developer": {"instructions": "a", "input": [{"role": "developer", "content": "b"}, _user("3?")]},
    "blank question": {"input": ""},
    "blank answer": {"input": [_user("Hi"), {"role": "assistant", "content": []}, _user("?")]},
    "blank turns": {"input": [_user([]), {"role": "assistant", "content": " "}, _user("?")]},
    "typed message": {"input": [{"type": "message", **_user([_PARTS["text"]])}]},
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
    "tools of both kinds": {"input": "?", "tools": [_OWN_TOOL, _SERVER_TOOLS["web search"]]},
    "server tool forced": {
        "input": "?",
        "tools": [_SERVER_TOOLS["web search"], _OWN_TOOL],
        "tool_choice": {"type": "web_search"},
    },
    "server tool required": {"input": "?", "tools": [_SERVER_TOOLS["web search"]], "tool_choice": "required"},
    "allowed tools": {
        "input": "?",
        "tools": [_OWN_TOOL],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    },
    "stream": {"input": "?", "stream": True},
    "stream options": {"input": "?", "stream": True, "stream_options": {"include_obfuscation": False}},
}
