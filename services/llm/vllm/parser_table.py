"""Which of vLLM's parsers reads what a model writes, found from its chat template or its name.

A template shows how the model was trained to write calls and thoughts, so what stands in it decides first; a name
decides where the template says nothing. The first entry that fits counts: special ones stand before general ones.

Source: the models in https://docs.vllm.ai/en/latest/features/tool_calling/ and
https://docs.vllm.ai/en/latest/features/reasoning_outputs/, and the markers that those parsers look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParserEntry:
    """A parser, and the models that it is for."""

    parser: str  # by vLLM's name
    markers: tuple[str, ...] = ()  # all of them stand in the template
    name: str = ""  # a regular expression that is found in the model's name or its type; empty: any

    def fits(self, template: str, names: str) -> bool:
        """Whether a model with this template and these names is meant."""
        if self.name and not re.search(self.name, names, re.IGNORECASE):
            return False
        return all(marker in template for marker in self.markers)


TOOLS: tuple[ParserEntry, ...] = (
    ParserEntry("openai", name=r"gpt[-_]oss"),
    ParserEntry("mistral", ("[TOOL_CALLS]",)),
    ParserEntry("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ParserEntry("deepseek_v32", ("｜DSML｜",)),
    ParserEntry("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    ParserEntry("deepseek_v31", ("<｜tool▁calls▁begin｜>",)),
    ParserEntry("minimax_m2", ("<minimax:tool_call>",)),
    ParserEntry("seed_oss", ("<seed:tool_call>",)),
    ParserEntry("longcat", ("<longcat_tool_call>",)),
    ParserEntry("step3", ("<｜tool_calls_begin｜>",)),
    ParserEntry("lfm2", ("<|tool_call_start|>",)),
    ParserEntry("internlm", ("<|action_start|>", "<|plugin|>")),
    ParserEntry("apertus", ("<|tools_prefix|>",)),
    ParserEntry("functiongemma", ("<start_function_call>",)),
    ParserEntry("gemma4", ("<|tool_call>",)),
    ParserEntry("cohere_command3", ("<|START_ACTION|>",)),
    ParserEntry("granite", ("<|tool_call|>",)),
    ParserEntry("granite-20b-fc", ("<function_call>",), r"granite"),
    ParserEntry("granite4", ("<tool_call>",), r"granite"),
    ParserEntry("hunyuan_a13b", ("<tool_calls>",), r"hunyuan"),
    ParserEntry("jamba", ("<tool_calls>",)),
    ParserEntry("olmo3", ("<function_calls>",), r"olmo"),
    ParserEntry("poolside_v1", ("<arg_key>",), r"poolside|laguna"),
    ParserEntry("glm47", ("<arg_key>",), r"glm[-_.]?(?:4\.7|5)"),
    ParserEntry("glm45", ("<arg_key>",)),
    ParserEntry("mimo", ("<tool_call>", "<function="), r"mimo"),
    ParserEntry("step3p5", ("<tool_call>", "<function="), r"step[-_]?3p?[.-]?5"),
    ParserEntry("qwen3_coder", ("<tool_call>", "<function=")),
    ParserEntry("minicpm5", ("<function name=",), r"minicpm"),
    ParserEntry("ernie45", ("<tool_call>",), r"ernie"),
    ParserEntry("xlam", name=r"xlam"),
    ParserEntry("hermes", ("<tool_call>",)),
    ParserEntry("phi4_mini_json", ("functools",)),
    ParserEntry("llama4_pythonic", ("<|python_start|>",)),
    ParserEntry("llama4_pythonic", ("params_name1=", "<|header_start|>")),
    ParserEntry("pythonic", ("params_name1=",)),
    ParserEntry("llama4_json", ("<|header_start|>", '"parameters"'), r"llama[-_]?4"),
    ParserEntry("llama3_json", ("<|python_tag|>",)),
    ParserEntry("llama3_json", ('{"name": function name, "parameters": dictionary',)),
    ParserEntry("mistral", name=r"(?:mi[sx]tral|ministral|magistral|devstral|codestral)"),
    ParserEntry("gigachat3", name=r"gigachat[-_]?3"),
    ParserEntry("deepseek_v4", name=r"deepseek[-_]?v4"),
    ParserEntry("kimi_k3", name=r"kimi[-_]?k3"),
    ParserEntry("hermes", name=r"hermes[-_]?[23]|qwen[-_]?2\.5|qwq"),
)

THOUGHTS: tuple[ParserEntry, ...] = (
    ParserEntry("openai_gptoss", name=r"gpt[-_]oss"),
    ParserEntry("mistral", ("[THINK]",)),
    ParserEntry("seed_oss", ("<seed:think>",)),
    ParserEntry("cohere_command3", ("<|START_THINKING|>",)),
    ParserEntry("granite", ("Here is my thought process:",)),
    ParserEntry("hunyuan_a13b", ("<think>", "enable_thinking"), r"hunyuan"),
    ParserEntry("kimi_k2", ("<think>", "<|tool_calls_section_begin|>")),
    ParserEntry("deepseek_v3", ("thinking", "</think>", "<｜tool▁calls▁begin｜>"), r"deepseek[-_]?v3"),
    ParserEntry("minimax_m2", ("<minimax:tool_call>", "<think>")),
    ParserEntry("glm45", ("<think>", "<arg_key>"), r"glm"),
    ParserEntry("ernie45", ("<think>",), r"ernie"),
    ParserEntry("mimo", ("<think>",), r"mimo"),
    ParserEntry("step3p5", ("<think>",), r"step[-_]?3p?[.-]?5"),
    ParserEntry("step3", ("<think>",), r"step[-_]?3"),
    ParserEntry("olmo3", ("<think>",), r"olmo"),
    ParserEntry("qwen3", ("<think>", "enable_thinking")),
    ParserEntry("deepseek_r1", name=r"deepseek[-_]?r1|qwq|qwen3.*thinking"),
)
# Of a template whose prompt for the answer ends with this, where no other entry fits.
OPENS_THOUGHTS = ParserEntry("deepseek_r1", ("<think>",))


def find(entries: Iterable[ParserEntry], template: str, names: str) -> str:
    """The parser for a model, by vLLM's name; empty where none is known. `names`: the model's name and its type."""
    return next((entry.parser for entry in entries if entry.fits(template, names)), "")
