"""Public facts of providers' models: contexts and prices, and which take pictures."""

from __future__ import annotations

import pytest

from launcher.meshfile.provider_models import UNKNOWN, find, sees


def test_a_providers_model_has_its_context_and_the_prices_of_the_providers_cache() -> None:
    claude = find("https://api.anthropic.com/v1", "claude-sonnet-4-5")
    assert claude.context_tokens == 200_000
    assert (claude.input, claude.output, claude.cached_input, claude.cache_write) == (3, 15, 0.3, 3.75)


@pytest.mark.parametrize(
    "url", ["https://api.openai.com/v1", "https://api.openai.com/v1/", "https://eu.api.openai.com/v1"]
)
def test_a_provider_is_known_by_its_url_and_what_has_no_price_of_its_own_has_none(url: str) -> None:
    mini = find(url, "gpt-5-mini")
    assert (mini.context_tokens, mini.input, mini.output, mini.cached_input) == (400_000, 0.25, 2, 0.025)
    assert mini.cache_write is None


def test_prices_by_length_use_that_of_short_prompts() -> None:
    assert find("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro").input == 1.25


@pytest.mark.parametrize(
    ("url", "model"),
    [
        ("https://api.openai.com/v1", "a-model-of-mine"),
        ("https://llm.example/v1", "gpt-5-mini"),
        ("http://127.0.0.1:8000/v1", "gpt-5-mini"),
        ("http://[::1]:8000/v1", "gpt-5-mini"),
        ("http://vllm:8000/v1", "gpt-5-mini"),
    ],
)
def test_a_model_is_known_only_with_its_providers_url(url: str, model: str) -> None:
    assert find(url, model) == UNKNOWN


SEEING = """
    gpt-4o gpt-4o-mini-2024-07-18 chatgpt-4o-latest gpt-4.1-nano gpt-4-turbo gpt-5-mini openai/gpt-5.1 o1-pro o3 o4-mini
    claude-3-haiku-20240307 claude-sonnet-4-5 us.anthropic.claude-opus-4-1-20250805-v1:0 anthropic/claude-3.7-sonnet
    gemini-1.5-pro google/gemini-2.5-flash gemini-flash-latest gemma3:4b google/gemma-3-27b-it grok-4 grok-2-vision-1212
    llava:13b llava-hf/llava-1.5-7b-hf Qwen/Qwen2.5-VL-7B-Instruct qwen-vl-max qwen2.5vl:7b pixtral-12b-2409
    llama3.2-vision:11b meta-llama/Llama-3.2-11B-Vision-Instruct meta-llama/Llama-4-Scout-17B-16E deepseek-vl2
    OpenGVLab/InternVL3-8B openbmb/MiniCPM-V-2_6 glm-4.5v mistral-small-latest amazon.nova-pro-v1:0
"""
BLIND = """
    gpt-3.5-turbo gpt-4 gpt-4-turbo-preview gpt-oss-20b gpt-4o-audio-preview gpt-4o-mini-search-preview o1-mini o3-mini
    claude-2.1 anthropic.claude-v2 claude-instant-1.2 gemini-1.0-pro gemini-2.5-flash-preview-tts gemma3:1b gemma-2-9b
    qwen3:8b Qwen/Qwen2.5-7B-Instruct meta-llama/Llama-3.3-70B deepseek-chat mistral-large-latest phi-4 small mine
"""


@pytest.mark.parametrize("model", SEEING.split())
def test_models_of_these_families_take_pictures(model: str) -> None:
    assert sees(model)


@pytest.mark.parametrize("model", BLIND.split())
def test_models_of_other_families_take_none(model: str) -> None:
    assert not sees(model)
