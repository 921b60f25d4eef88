"""vLLM's parsers, which know how models write calls and thoughts; and what is done where none is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from services.llm.config import VllmSettings
from services.llm.dialects.openai_request import to_messages, to_tools
from services.llm.engine import Constraint, Message, Request, Tool, ToolChoice
from services.llm.errors import BadEngineSettings
from services.llm.vllm import forced_calls, text_tools
from services.llm.vllm.model_habits import Habits, habits_of
from services.llm.vllm.reading import ForcedReading, ParsedReading, PlainReading, TaggedReading, VllmReading
from services.runtime.errors import NotSupported

_log = logging.getLogger("services.llm")
# How a call is written that a parser finds: what it begins with, what stands before its arguments and behind them.
_WRITTEN: Mapping[str, tuple[str, str, str]] = {
    "hermes": ("<tool_call>", '<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>")
}


def found(settings: VllmSettings, model: Any, tokenizer: Any) -> Habits:
    """The parsers for a model: those that the settings name, else those for its template or its name. Raises
    BadEngineSettings for names that vLLM does not know."""
    habits = habits_of(model, tokenizer)
    return Habits(
        _usable("tool_parser", settings.tool_parser, habits.tool_parser, model, tokenizer),
        _usable("reasoning_parser", settings.reasoning_parser, habits.reasoning_parser, model, tokenizer),
        habits.takes_system,
    )


def _usable(kind: str, configured: str | None, known: str, model: Any, tokenizer: Any) -> str:
    """A parser that was found but cannot read this tokenizer's tokens is not used; one from the settings stops the
    start."""
    name = known if configured is None else configured
    try:
        _parser(model, tokenizer, **{f"{kind}_name": name})
    except (TypeError, ValueError) as error:
        if configured is not None:
            raise BadEngineSettings(f"vllm.{kind}: {error}") from error
        _log.info("vLLM's %s %s is not used: %s", kind, name, error)
        return ""
    if configured is None and name:
        _log.info("vllm.%s: %s, by the model's chat template or name", kind, name)
    return name


def _parser(model: Any, tokenizer: Any, **names: str) -> Any:
    from vllm.parser import ParserManager

    return ParserManager.get_parser(
        **{name: value or None for name, value in names.items()},
        enable_auto_tools=True,
        model_name=model.model,
        is_harmony=model.hf_config.model_type == "gpt_oss",
        tokenizer=tokenizer,
    )


class Parsers:
    """The parsers for a model with these habits."""

    def __init__(self, habits: Habits, engine: Any):
        self._habits, self._engine = habits, engine
        model, tokenizer = engine.model_config, engine.get_tokenizer()
        thoughts = habits.reasoning_parser
        self._of_thoughts = _parser(model, tokenizer, reasoning_parser_name=thoughts)
        self._of_both = _parser(model, tokenizer, tool_parser_name=habits.tool_parser, reasoning_parser_name=thoughts)

    def check(self, request: Request) -> None:
        """Raise NotSupported for what would come out otherwise than asked."""
        if chooses(request) and request.constraint:
            raise NotSupported("response_format: not together with tools, by this engine", field="response_format")

    def shown(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], choice: ToolChoice) -> Shown:
        """A conversation, and the tools in it, as the chat template takes them."""
        tools = tools if choice.mode != "none" else ()
        if not self._in_text(tools, choice):
            return messages, tools
        if not tools and not any(message.tool_calls or message.role == "tool" for message in messages):
            return messages, ()
        return text_tools.as_text(messages, tools, takes_system=self._habits.takes_system), ()

    def constraint(self, request: Request) -> Constraint | None:
        """The constraint on the answer for its calls' sake."""
        if request.tools and request.tool_choice.forces:
            return forced_calls.constraint(request)
        if not chooses(request):
            return None
        if self._in_text(request.tools, request.tool_choice):
            return text_tools.constraint(request)
        return self._strictly(request) if any(tool.strict for tool in request.tools) else None

    def reading(self, request: Request, prompt: Sequence[int]) -> tuple[VllmReading, Mapping[str, Any]]:
        """How the answer is read, and what of vLLM's sampling parameters that takes."""
        by_tags = chooses(request) and self._in_text(request.tools, request.tool_choice)
        cls = self._of_both if chooses(request) and not by_tags else self._of_thoughts
        reading, more = self._inner(cls, request, prompt, tools=not by_tags)
        if request.tool_choice.forces:
            return ForcedReading(request, reading), more
        return (TaggedReading(reading) if by_tags else reading), more

    def _inner(
        self, cls: Any, request: Request, prompt: Sequence[int], *, tools: bool
    ) -> tuple[VllmReading, dict[str, Any]]:
        if cls is None or request.prefix:  # which is behind all thoughts
            return PlainReading(), {}
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        shown = to_tools(request.tools) if tools and chooses(request) else None
        asked = ChatCompletionRequest(messages=to_messages(request.messages), tools=shown, stream=True)
        parser = cls(self._engine.get_tokenizer(), asked.tools, model_config=self._engine.model_config)
        asked = parser.adjust_request(asked)
        reading = ParsedReading(parser, asked, prompt, parallel=request.parallel_tool_calls)
        return reading, {"skip_special_tokens": asked.skip_special_tokens}

    def _in_text(self, tools: tuple[Tool, ...], choice: ToolChoice) -> bool:
        """Whether tools are shown and called in our own way: where no parser is known, and where arguments must match
        and it is not known how a grammar would follow the model's own."""
        name = self._habits.tool_parser
        strictly = choice.mode == "auto" and any(tool.strict for tool in tools)
        return not name or (strictly and name not in _WRITTEN)

    def _strictly(self, request: Request) -> Constraint:
        """Text as it comes; a call, where one begins, as the tool's schema has it."""
        from llguidance import StructTag

        trigger, begin, end = _WRITTEN[self._habits.tool_parser]
        anything: dict[str, Any] = {"type": "object"}
        schemas = {
            tool.name: forced_calls.parameters(tool) | forced_calls.SPACED if tool.strict else anything
            for tool in request.tools
        }
        tags = [
            StructTag(trigger=trigger, begin=begin % name, grammar=schema, end=end) for name, schema in schemas.items()
        ]
        special = trigger in self._engine.get_tokenizer().all_special_tokens
        return Constraint("grammar", StructTag.to_grammar(tags, assume_special=special), field="tools")


Shown = tuple[tuple[Message, ...], tuple[Tool, ...]]


def chooses(request: Request) -> bool:
    """Whether the model may call tools or not, as it sees fit."""
    return bool(request.tools) and request.tool_choice.mode == "auto"
