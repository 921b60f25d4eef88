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
class Entry:
    """A parser, and the models that it is for."""

    parser: str  # by vLLM's name
    markers: tuple[str, ...] = ()  # all of them stand in the template
    name: str = ""  # a regular expression that is found in the model's name or its type; empty: any

    def fits(self, template: str, names: str) -> bool:
        """Whether a model with this template and these names is meant."""
        if self.name and not re.search(self.name, names, re.IGNORECASE):
            return False
        return all(marker in template for marker in self.markers)


TOOLS: tuple[Entry, ...] = (
    Entry("openai", name=r"gpt[-_]oss"),
    Entry("mistral", ("[TOOL_CALLS]",)),
    Entry("kimi_k2", ("<|tool_calls_section_begin|>",)),
    Entry("deepseek_v32", ("｜DSML｜",)),
    Entry("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    Entry("deepseek_v31", ("<｜tool▁calls▁begin｜>",)),
    Entry("minimax_m2", ("<minimax:tool_call>",)),
    Entry("seed_oss", ("<seed:tool_call>",)),
    Entry("longcat", ("<longcat_tool_call>",)),
    Entry("step3", ("<｜tool_calls_begin｜>",)),
    Entry("lfm2", ("<|tool_call_start|>",)),
    Entry("internlm", ("<|action_start|>", "<|plugin|>")),
    Entry("apertus", ("<|tools_prefix|>",)),
    Entry("functiongemma", ("<start_function_call>",)),
    Entry("gemma4", ("<|tool_call>",)),
    Entry("cohere_command3", ("<|START_ACTION|>",)),
    Entry("granite", ("<|tool_call|>",)),
    Entry("granite-20b-fc", ("<function_call>",), r"granite"),
    Entry("granite4", ("<tool_call>",), r"granite"),
    Entry("hunyuan_a13b", ("<tool_calls>",), r"hunyuan"),
    Entry("jamba", ("<tool_calls>",)),
    Entry("olmo3", ("<function_calls>",), r"olmo"),
    Entry("poolside_v1", ("<arg_key>",), r"poolside|laguna"),
    Entry("glm47", ("<arg_key>",), r"glm[-_.]?(?:4\.7|5)"),
    Entry("glm45", ("<arg_key>",)),
    Entry("mimo", ("<tool_call>", "<function="), r"mimo"),
    Entry("step3p5", ("<tool_call>", "<function="), r"step[-_]?3p?[.-]?5"),
    Entry("qwen3_coder", ("<tool_call>", "<function=")),
    Entry("minicpm5", ("<function name=",), r"minicpm"),
    Entry("ernie45", ("<tool_call>",), r"ernie"),
    Entry("xlam", name=r"xlam"),
    Entry("hermes", ("<tool_call>",)),
    Entry("phi4_mini_json", ("functools",)),
    Entry("llama4_pythonic", ("<|python_start|>",)),
    Entry("llama4_pythonic", ("params_name1=", "<|header_start|>")),
    Entry("pythonic", ("params_name1=",)),
    Entry("llama4_json", ("<|header_start|>", '"parameters"'), r"llama[-_]?4"),
    Entry("llama3_json", ("<|python_tag|>",)),
    Entry("llama3_json", ('{"name": function name, "parameters": dictionary',)),
    Entry("mistral", name=r"(?:mi[sx]tral|ministral|magistral|devstral|codestral)"),
    Entry("gigachat3", name=r"gigachat[-_]?3"),
    Entry("deepseek_v4", name=r"deepseek[-_]?v4"),
    Entry("kimi_k3", name=r"kimi[-_]?k3"),
    Entry("hermes", name=r"hermes[-_]?[23]|qwen[-_]?2\.5|qwq"),
)

THOUGHTS: tuple[Entry, ...] = (
    Entry("openai_gptoss", name=r"gpt[-_]oss"),
    Entry("mistral", ("[THINK]",)),
    Entry("seed_oss", ("<seed:think>",)),
    Entry("cohere_command3", ("<|START_THINKING|>",)),
    Entry("granite", ("Here is my thought process:",)),
    Entry("hunyuan_a13b", ("<think>", "enable_thinking"), r"hunyuan"),
    Entry("kimi_k2", ("<think>", "<|tool_calls_section_begin|>")),
    Entry("deepseek_v3", ("thinking", "</think>", "<｜tool▁calls▁begin｜>"), r"deepseek[-_]?v3"),
    Entry("minimax_m2", ("<minimax:tool_call>", "<think>")),
    Entry("glm45", ("<think>", "<arg_key>"), r"glm"),
    Entry("ernie45", ("<think>",), r"ernie"),
    Entry("mimo", ("<think>",), r"mimo"),
    Entry("step3p5", ("<think>",), r"step[-_]?3p?[.-]?5"),
    Entry("step3", ("<think>",), r"step[-_]?3"),
    Entry("olmo3", ("<think>",), r"olmo"),
    Entry("qwen3", ("<think>", "enable_thinking")),
    Entry("deepseek_r1", name=r"deepseek[-_]?r1|qwq|qwen3.*thinking"),
)
# Of a template whose prompt for the answer ends with this, where no other entry fits.
OPENS_THOUGHTS = Entry("deepseek_r1", ("<think>",))


def find(entries: Iterable[Entry], template: str, names: str) -> str:
    """The parser for a model, by vLLM's name; empty where none is known. `names`: the model's name and its type."""
    return next((entry.parser for entry in entries if entry.fits(template, names)), "")
