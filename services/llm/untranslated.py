"""What a caller has written for another API than the model's: refused by name where it may change the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from services.llm.engine import Model, Original
from services.runtime.errors import InvalidInput, shorten

# Of no effect on an answer: whose a request is, and what a provider keeps, caches or bills of it.
_HARMLESS_AT_TOP = frozenset(
    {
        "include",
        "cache_control",
        "diagnostics",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "user",
    }
)
# The same further in, and what clients repeat of earlier answers.
_HARMLESS_WITHIN = frozenset(
    {
        "annotations",
        "cache_control",
        "caller",
        "citations",
        "container",
        "detail",
        "encrypted_content",
        "id",
        "include_obfuscation",
        "index",
        "prompt_cache_breakpoint",
        "logprobs",
        "phase",
        "reasoning",
        "reasoning_content",
        "refusal",
        "signature",
        "status",
        "summary",
        "thinking",
    }
)
# Names and notes of a form, and values that say what is so anyhow.
_SAYS_NOTHING: Mapping[str, re.Pattern[str]] = {
    "description": re.compile(".*", re.DOTALL),
    "service_tier": re.compile('"(auto|default|standard_only)"'),
    "strict": re.compile("true|false"),
    "tool_choice": re.compile('"(auto|none)"'),
    "type": re.compile('"(text|custom|function|ephemeral)"'),
    "verbosity": re.compile('"medium"'),
}
_EMPTY = ("", "[]", "{}", "false", '""')
_FORM_NAME = re.compile(r"(response_format|text\.format)(\.json_schema)?\.name")
_THOUGHT = re.compile(r"input\[\d+\]\.content")  # of an item of reasoning: that of a message is translated
_SEALED = re.compile(r"messages\[\d+\]\.content\[\d+\]\.data")  # of a redacted thought: no other block's is left
_THINKING = "thinking"  # asks for thoughts; in a message it is one of an earlier turn
_EFFORT = re.compile(r'"effort":"(?!none")')  # in `reasoning` of Responses


def check(original: Original | None, model: Model) -> None:
    """Raise InvalidInput for the first field that `model` would not get."""
    for place, matters in unknown(original, model):
        if original and matters:
            raise InvalidInput(place, f"no such field of model {model.name}", shorten(original.untranslated[place]))


def unknown(original: Original | None, model: Model) -> Iterator[tuple[str, bool]]:
    """The fields that say something and that `model` would not get, in their places' order, and whether an answer may
    depend on each."""
    for place, given in sorted((original.untranslated if original else {}).items()):
        if given not in _EMPTY and model.takes.isdisjoint((place, f"{place}={given}")):
            yield place, not _is_harmless(place, given)


def _is_harmless(place: str, given: str) -> bool:
    if _FORM_NAME.fullmatch(place) or _THOUGHT.fullmatch(place) or _SEALED.fullmatch(place):
        return True
    above, _, name = place.rpartition(".")
    if place == _THINKING:
        return given == '{"type":"disabled"}'
    if place == "reasoning":
        return not _EFFORT.search(given)
    if name in (_HARMLESS_WITHIN if above else _HARMLESS_AT_TOP):
        return True
    says_nothing = _SAYS_NOTHING.get(name)
    return bool(says_nothing and says_nothing.fullmatch(given))
