"""Which parser reads a model, by its template or its name. The templates are what counts of those on the hub."""

from __future__ import annotations

import jinja2
import pytest

from services.llm.vllm.model_habits import Habits, Turn, read_habits

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOLS = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
HERMES = (
    TOOLS + '{% if tools %}<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}{% endif %}' + CHATML
)
CODER = TOOLS + "{% if tools %}<tool_call>\\n<function=example_function_name>\\n<parameter=example>{% endif %}" + CHATML
GLM = TOOLS + "{% if tools %}<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>{% endif %}" + CHATML
LLAMA = TOOLS + "{% if tools %}<|python_tag|>{% endif %}" + CHATML
LLAMA_3_2 = (
    TOOLS + '{{- \'Use {"name": function name, "parameters": dictionary of argument name and its value}.\' }}' + CHATML
)
MISTRAL = TOOLS + "{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS]{% endif %}" + CHATML
DEEPSEEK_V3 = TOOLS + "{{ '<｜tool▁calls▁begin｜>' if tools }}{{ '```json' if tools }}" + CHATML
DEEPSEEK_V31 = TOOLS + "{{ '<｜tool▁calls▁begin｜>' if tools }}{{ '</think>' if thinking }}" + CHATML
KIMI = TOOLS + "{{ '<|tool_calls_section_begin|>' if tools }}" + CHATML
GRANITE = TOOLS + "{{ '<|tool_call|>' if tools }}{{ 'Here is my thought process:' if thinking }}" + CHATML
THINKS = CHATML.replace("assistant\n{%", "assistant\n<think>\n{%")
HYBRID = HERMES + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
SILENT = HERMES + "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
GEMMA = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML


def habits(template: str, names: str = "") -> Habits:
    """With a stand-in for a tokenizer's rendering."""

    def refuse(why: str) -> None:
        raise jinja2.TemplateError(why)

    def render(conversation: list[Turn]) -> str | None:
        environment = jinja2.Environment()
        environment.globals["raise_exception"] = refuse
        try:
            return environment.from_string(template).render(messages=conversation, add_generation_prompt=True)
        except jinja2.TemplateError:
            return None

    return read_habits(template, names, render)


@pytest.mark.parametrize(
    ("template", "names", "tool_parser", "reasoning_parser"),
    [
        (CHATML, "SmolLM2-135M-Instruct llama", "", ""),
        (HERMES, "Qwen2.5-7B-Instruct qwen2", "hermes", ""),
        (HERMES, "Hermes-2-Pro-Llama-3-8B llama", "hermes", ""),
        (HYBRID, "Qwen3-8B qwen3", "hermes", "qwen3"),
        (SILENT, "Qwen3.5-0.8B qwen3_5", "hermes", ""),
        (HERMES, "Qwen3-4B-Instruct-2507 qwen3", "hermes", ""),
        (CODER, "Qwen3-Coder-30B-A3B-Instruct qwen3_moe", "qwen3_coder", ""),
        (CODER, "MiMo-V2-Flash mimo", "mimo", ""),
        (LLAMA, "Llama-3.1-8B-Instruct llama", "llama3_json", ""),
        (LLAMA_3_2, "Llama-3.2-1B-Instruct llama", "llama3_json", ""),
        (MISTRAL, "Mistral-7B-Instruct-v0.3 mistral", "mistral", ""),
        ("", "Ministral-3-8B mistral3", "mistral", ""),
        ("", "gpt-oss-20b gpt_oss", "openai", "openai_gptoss"),
        (DEEPSEEK_V3, "DeepSeek-V3-0324 deepseek_v3", "deepseek_v3", ""),
        (DEEPSEEK_V31, "DeepSeek-V3.1 deepseek_v3", "deepseek_v31", "deepseek_v3"),
        (THINKS, "DeepSeek-R1-Distill-Qwen-1.5B qwen2", "", "deepseek_r1"),
        (THINKS, "my-thinker llama", "", "deepseek_r1"),
        (GLM + "<think>", "GLM-4.5-Air glm4_moe", "glm45", "glm45"),
        (GLM, "GLM-4.7-Flash glm4_moe_lite", "glm47", ""),
        (KIMI, "Kimi-K2-Instruct kimi_k2", "kimi_k2", ""),
        (GRANITE, "granite-3.3-8b-instruct granite", "granite", "granite"),
        (HERMES, "granite-4.0-micro granitemoehybrid", "granite4", ""),
    ],
)
def test_a_parser_is_found_from_the_template_or_the_name(
    template: str, names: str, tool_parser: str, reasoning_parser: str
) -> None:
    assert habits(template, names) == Habits(tool_parser, reasoning_parser)


def test_a_template_decides_before_a_name() -> None:
    assert habits(LLAMA, "Hermes-3-Llama-3.1-8B llama").tool_parser == "llama3_json"


@pytest.mark.parametrize(
    "template",
    [
        CHATML + "{{ message.tools if message }}<tool_call>",
        CHATML + "{{ 'no tools' }}<tool_call>",
        CHATML + "{% if tools_in_user_message %}{% endif %}<tool_call>",
        CHATML + "You have no tools. <tool_call>",
    ],
)
def test_a_template_that_shows_no_tools_has_no_parser_for_their_calls(template: str) -> None:
    assert habits(template, "Qwen2.5-7B-Instruct qwen2").tool_parser == ""


def test_a_template_that_takes_no_system_message_is_known() -> None:
    assert not habits(GEMMA).takes_system
    assert habits(CHATML).takes_system
