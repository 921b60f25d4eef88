"""Tools for a model whose chat template has no place for them, or whose way of calling no parser is known for.

They are described in the system message, and earlier calls and results are in messages that every
template takes. The answer is text, or text and calls, each between tags: the form of Nous Research's Hermes models,
which others have learned as well (https://github.com/NousResearch/Hermes-Function-Calling). A grammar lets text pass
and keeps each call to its tool's schema, so that a small model calls badly at worst, but never out of form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from services.llm.dialects.openai_request import to_tools
from services.llm.engine import Constraint, Message, Part, Request, Tool, ToolCall
from services.llm.vllm import forced_calls

BEGIN, END = "<tool_call>", "</tool_call>"
MOST_CALLS = 8  # of one answer: a small model may else call again and again until its tokens are used up

_SHOWN = """# Tools

You may call one or more functions where the user's request needs them. Otherwise answer in plain text.
Their definitions are between <tools></tools>:
<tools>
{tools}
</tools>

To call a function, write a JSON object with its name and its arguments between <tool_call></tool_call>:
<tool_call>
{{"name": <function-name>, "arguments": <arguments-as-JSON-object>}}
</tool_call>"""


_TAIL = json.dumps("}\n" + END)


def constraint(request: Request) -> Constraint:
    """Text as it comes; from the first tag on, calls by their tools' schemas, as many as there may be."""
    more = f'("\\n{BEGIN}" call){{0,{MOST_CALLS - 1}}}' if request.parallel_tool_calls else ""
    lines = [
        "%llguidance {}",
        "start: TEXT | text_and_tag call " + more,
        f'text_and_tag[lazy]: TEXT "{BEGIN}"',
        "TEXT: /(.|\\n)*/",
        "call: " + " | ".join(f"call_{index}" for index in range(len(request.tools))),
        *(_rule(index, tool) for index, tool in enumerate(request.tools)),
    ]
    return Constraint("grammar", "\n".join(lines), field="tools")


def _rule(index: int, tool: Tool) -> str:
    head = json.dumps(f'\n{{"name": "{tool.name}", "arguments": ')
    schema = json.dumps(forced_calls.parameters(tool) | forced_calls.SPACED)
    return f"call_{index}: {head} %json {schema} {_TAIL}"


def as_text(messages: tuple[Message, ...], tools: tuple[Tool, ...], *, takes_system: bool) -> tuple[Message, ...]:
    """A conversation without tools in it but in its texts."""
    converted = tuple(_joined(_as_text(message) for message in messages))
    return _instructed(converted, _shown(tools), takes_system=takes_system) if tools else converted


def _as_text(message: Message) -> Message:
    if message.role == "tool" and message.parts:
        begin, end = Part("text", "<tool_response>\n"), Part("text", "\n</tool_response>")
        return Message("user", parts=(begin, *message.parts, end))
    if message.role == "tool":
        return Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if message.tool_calls:
        said = [message.content] if message.content else []
        return replace(message, content="\n".join([*said, *map(_written, message.tool_calls)]), tool_calls=())
    return message


def _written(call: ToolCall) -> str:
    return f'{BEGIN}\n{{"name": "{call.name}", "arguments": {call.arguments or "{}"}}}\n{END}'


def _joined(messages: Iterable[Message]) -> Iterable[Message]:
    """The messages with consecutive turns of the user joined: many templates accept no two turns of one role."""
    for text, run in groupby(messages, lambda message: message.role == "user" and not message.parts):
        if text:
            yield Message("user", "\n".join(message.content for message in run))
        else:
            yield from run


def _shown(tools: tuple[Tool, ...]) -> str:
    return _SHOWN.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in to_tools(tools)))


def _instructed(messages: tuple[Message, ...], text: str, *, takes_system: bool) -> tuple[Message, ...]:
    """The messages with `text` after the system message, or in one of its own; before the first turn if the template
    accepts none."""
    first, *rest = messages
    if takes_system and first.role != "system":
        return (Message("system", text), *messages)
    if first.parts:
        return (replace(first, parts=(Part("text", text), *first.parts)), *rest)
    joined = f"{first.content}\n\n{text}" if first.role == "system" else f"{text}\n\n{first.content}"
    return (replace(first, content=joined), *rest)
