"""The system prompts that are kept warm, each as a model reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from services.gateway.prompt.compression import dieted
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings

ALL = "*"
_VARIANTS = ("default", "simple", "complex")


@dataclass(frozen=True, slots=True)
class HotPrompt:
    """`name` is for people: `support@3 (default)`."""

    name: str
    text: str


def hot_prompts(
    names: Iterable[str], kept: Mapping[str, SystemPromptSettings], settings: PromptSettings
) -> list[HotPrompt]:
    """All variants of those of the `kept` prompts that are named; `*` names all."""
    wanted = set(names)
    chosen = kept if ALL in wanted else [name for name in kept if name in wanted]
    return [prompt for name in chosen for prompt in _variants(name, kept[name], settings)]


def _variants(name: str, kept: SystemPromptSettings, settings: PromptSettings) -> Iterator[HotPrompt]:
    for variant in _VARIANTS:
        if text := getattr(kept, variant):
            yield HotPrompt(f"{name}@{kept.version} ({variant})", _as_read(text, settings))


def _as_read(text: str, settings: PromptSettings) -> str:
    """What stands before a question that does not say how its prompt is to be put on a diet."""
    if settings.diet == "off":
        return text
    return dieted(text, settings.diet_to_bytes, settings.max_examples).text
