"""vLLM's parsers, which know how models write calls and thoughts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.llm import forced_calls
from services.llm.config import VllmSettings
from services.llm.engine import Constraint, Request
from services.llm.errors import BadEngineSettings
from services.llm.openai_wire import to_messages, to_tools
from services.llm.vllm_reading import ForcedReading, ParsedReading, PlainReading, Reading
from services.runtime.errors import NotSupported

# How a call is written that a parser finds: what it begins with, what stands before its arguments and behind them.
_WRITTEN: Mapping[str, tuple[str, str, str]] = {
    "hermes": ("<tool_call>", '<tool_call>\n{"name": "%s", "arguments": ', "}\n</tool_call>"),
}


class Parsers:
    """Those that the settings name. Raises BadEngineSettings for names that vLLM does not know."""

    def __init__(self, settings: VllmSettings, engine: Any):
        from vllm.parser import ParserManager

        self._tool_parser = settings.tool_parser
        self._engine = engine
        model = engine.model_config
        try:
            of_thoughts, of_both = (
                ParserManager.get_parser(
                    tool_parser_name=name or None,
                    reasoning_parser_name=settings.reasoning_parser or None,
                    enable_auto_tools=True,
                    model_name=model.model,
                    is_harmony=model.hf_config.model_type == "gpt_oss",
                    tokenizer=engine.get_tokenizer(),
                )
                for name in ("", settings.tool_parser)
            )
        except (TypeError, ValueError) as error:
            raise BadEngineSettings(f"vllm.tool_parser, vllm.reasoning_parser: {error}") from error
        self._of_thoughts, self._of_both = of_thoughts, of_both

    def check(self, request: Request) -> None:
        """Raise NotSupported for what would come out otherwise than asked."""
        if not chooses(request):
            return
        if request.constraint:
            raise NotSupported("response_format: not together with tools, by this engine", field="response_format")
        if not self._tool_parser:
            limit = "auto needs the setting vllm.tool_parser; required, or a tool's name, does not"
            raise NotSupported(f"tool_choice: {limit}", field="tool_choice")
        for index, tool in enumerate(request.tools):
            if tool.strict and self._tool_parser not in _WRITTEN:
                limit = f"not supported with the tool parser {self._tool_parser} where the model chooses"
                raise NotSupported(f"tools[{index}].strict: {limit}", field=f"tools[{index}].strict")

    def constraint(self, request: Request) -> Constraint | None:
        """What the answer must match for its calls' sake."""
        if request.tools and request.tool_choice.forces:
            return forced_calls.constraint(request)
        if chooses(request) and any(tool.strict for tool in request.tools):
            return self._strictly(request)
        return None

    def reading(self, request: Request, prompt: Sequence[int]) -> tuple[Reading, Mapping[str, Any]]:
        """How the answer is read, and what of vLLM's sampling parameters that takes."""
        cls = self._of_both if chooses(request) else self._of_thoughts
        if cls is None or request.prefix:  # which is behind all thoughts
            plain = PlainReading()
            return (ForcedReading(request, plain) if request.tool_choice.forces else plain), {}
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        tools = to_tools(request.tools) if chooses(request) else None
        asked = ChatCompletionRequest(messages=to_messages(request.messages), tools=tools, stream=True)
        parser = cls(self._engine.get_tokenizer(), asked.tools, model_config=self._engine.model_config)
        asked = parser.adjust_request(asked)
        reading = ParsedReading(parser, asked, prompt, parallel=request.parallel_tool_calls)
        outer = ForcedReading(request, reading) if request.tool_choice.forces else reading
        return outer, {"skip_special_tokens": asked.skip_special_tokens}

    def _strictly(self, request: Request) -> Constraint:
        """Text as it comes; a call, where one begins, as the tool's schema has it."""
        from llguidance import StructTag

        trigger, begin, end = _WRITTEN[self._tool_parser]
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


def chooses(request: Request) -> bool:
    """Whether the model may call tools or not, as it sees fit."""
    return bool(request.tools) and request.tool_choice.mode == "auto"
