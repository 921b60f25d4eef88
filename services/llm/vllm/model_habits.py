"""How a model writes calls of tools and thoughts, and what its chat template takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from services.llm.vllm import parser_table

Turn = dict[str, str]
_CODE = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)  # of Jinja
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_TOOLS = re.compile(r"(?<![\w.])tools\b")
_SYSTEM, _USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}


@dataclass(frozen=True, slots=True)
class Habits:
    """Parsers by vLLM's names; empty where none is known."""

    tool_parser: str = ""
    reasoning_parser: str = ""
    takes_system: bool = True  # whether the template takes a system message


def habits_of(model: Any, tokenizer: Any) -> Habits:
    """The habits of a model, from vLLM's `ModelConfig`. A tokenizer that is not from Hugging Face has no chat
    template."""
    names = f"{PurePath(model.model).name} {model.hf_config.model_type}"
    template = _template(model, tokenizer)
    return read_habits(template, names, lambda conversation: _rendered(tokenizer, template, conversation))


def read_habits(template: str, names: str, render: Callable[[list[Turn]], str | None]) -> Habits:
    """The habits of a template. `render` makes the prompt of a conversation, or None if the template refuses it."""
    shown = not template or _shows_tools(template)
    tool_parser = parser_table.find(parser_table.TOOLS, template, names) if shown else ""
    reasoning_parser = _reasoning_parser(template, names, render([_USER]) or "")
    return Habits(tool_parser, reasoning_parser, not template or render([_SYSTEM, _USER]) is not None)


def _reasoning_parser(template: str, names: str, prompt: str) -> str:
    """The reasoning parser; empty for a model that thinks only on request: its template closes the thoughts before they
    begin."""
    end = prompt.rstrip()
    if end.endswith("</think>"):
        return ""
    if found := parser_table.find(parser_table.THOUGHTS, template, names):
        return found
    opened = end.endswith(parser_table.OPENS_THOUGHTS.markers[0])
    return parser_table.OPENS_THOUGHTS.parser if opened else ""


def _template(model: Any, tokenizer: Any) -> str:
    if not hasattr(tokenizer, "get_chat_template"):
        return ""
    from vllm.renderers.hf import resolve_chat_template

    return resolve_chat_template(tokenizer, None, [], model_config=model) or ""


def _shows_tools(template: str) -> bool:
    """Whether a template reads the variable `tools`, which has the definitions."""
    code = _STRING.sub("", " ".join(_CODE.findall(template)))
    return bool(_TOOLS.search(code))


def _rendered(tokenizer: Any, template: str, conversation: list[Turn]) -> str | None:
    if not template:
        return None
    try:
        prompt = tokenizer.apply_chat_template(
            conversation, chat_template=template, tokenize=False, add_generation_prompt=True
        )
    except Exception:  # a template says in its own way what it does not take
        return None
    return str(prompt)
