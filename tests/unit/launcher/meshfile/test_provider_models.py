"""Public facts of providers' models: contexts and prices."""

from __future__ import annotations

import pytest

from launcher.meshfile.provider_models import UNKNOWN, find


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
