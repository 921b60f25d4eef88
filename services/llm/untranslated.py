"""Fields that a caller has written for another API than the model's: refused by name where they may change the answer,
or left out where the request wants that.

Only fields that tune an answer are left out. What changes the question never is: another number of answers, kinds of
output, messages, parts, tools, forms, where an answer ends, and any field that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from services.llm.dialects import counterparts, documents
from services.llm.engine import Feature, Model, Original, Request, Sampling
from services.runtime.errors import InvalidInput, shorten

# Of no effect on an answer: whose a request is, and what a provider keeps, caches or bills of it.
_HARMLESS_AT_TOP = frozenset(
    {
        "include",
        "cache_control",
        "client_metadata",
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
# The same further in, how a call's arguments are streamed, and what clients repeat of earlier answers.
_HARMLESS_WITHIN = frozenset(
    {
        "annotations",
        "cache_control",
        "caller",
        "citations",
        "container",
        "detail",
        "eager_input_streaming",
        "encrypted_content",
        "extra_content",
        "id",
        "include_obfuscation",
        "index",
        "prompt_cache_breakpoint",
        "logprobs",
        "parsed",
        "parsed_arguments",
        "phase",
        "provider_specific_fields",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "refusal",
        "signature",
        "status",
        "summary",
        "thinking",
        "thinking_blocks",
    }
)
# Names and notes of a form, and values that say what is so anyhow.
_SAYS_NOTHING: Mapping[str, re.Pattern[str]] = {
    "context_management": re.compile(r'{"edits":\[({"type":"clear_thinking_[^{}]*({[^{}]*})?})?]}'),  # none is sent
    "description": re.compile(".*", re.DOTALL),
    "effort": re.compile('"none"'),
    "inference_geo": re.compile('"global"'),
    "service_tier": re.compile('"(auto|default|standard_only)"'),
    "speed": re.compile('"standard"'),
    "stream_options": re.compile('{"include_obfuscation":(true|false)}'),
    "strict": re.compile("true|false"),
    "tool_choice": re.compile('"(auto|none)"'),
    "type": re.compile('"(text|custom|function|ephemeral)"'),
    "verbosity": re.compile('"medium"'),
}
# How the texts of a conversation are divided, and names that only repeat the roles.
_OF_MESSAGES = ("messages[].content", "messages[].name")
_EMPTY = ("", "[]", "{}", "false", '""')
_ASKS = (
    "web_search_options",
)  # also without any field in it: https://platform.openai.com/docs/guides/tools-web-search
_FORM_NAME = re.compile(r"(response_format|text\.format)(\.json_schema)?\.name")
_THOUGHT = re.compile(r"input\[\d+\]\.content")  # of an item of reasoning: that of a message is translated
_SEALED = re.compile(r"messages\[\d+\]\.content\[\d+\]\.data")  # of a redacted thought: no other block's is left
_THINKING = "thinking"  # asks for thoughts; in a message it is one of an earlier turn
# None, or as the model decides: https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking
_NO_THINKING_ASKED = re.compile(r'{"type":"(disabled|adaptive)"(,"display":"(omitted|summarized)")?}')
_EFFORT = re.compile(r'"effort":"(?!none")')  # in `reasoning` of Responses
# How much a model thinks and writes, how soon and at which price.
_TUNES = re.compile(
    r"reasoning(\.(effort|summary|max_tokens|exclude|enabled))?|reasoning_effort|include_reasoning|thinking|enable_thinking"
    r"|thinking_budget|verbosity|text\.verbosity|output_config\.effort|service_tier|speed|prediction|top_a"
    r"|messages\[\d+\]\.name|tools\[\d+\]\.(function\.)?input_examples"
)
# How tokens are drawn, with the feature that a model needs for it.
_DRAWS = {
    "seed": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "logit_bias": Feature.LOGIT_BIAS,
    "top_k": Feature.TOP_K,
    "min_p": Feature.VLLM_SAMPLING,
    "repetition_penalty": Feature.VLLM_SAMPLING,
}
_UNSET: Mapping[str, Any] = {name: getattr(Sampling(), name) for name in _DRAWS}
_INDEX = re.compile(r"\[\d+\]")

_REFERENCE = '"type":"item_reference"'
_INSTEAD = " where the gateway stores no responses: send the item itself, as clients do with `store: false`"
_OMIT = " (`untranslated: omit` leaves it out)"


def check(original: Original | None, model: Model) -> None:
    """Raise InvalidInput for the first field that `model` would not get."""
    for place, matters in unknown(original, model):
        if original and matters:
            given = original.untranslated[place]
            raise InvalidInput(place, _limit(original, place, given, model), shorten(given))


def _limit(original: Original, place: str, given: str, model: Model) -> str:
    if place in original.documents:
        if documents.is_picture(given) and Feature.IMAGES not in model.features:
            return f"no picture: model {model.name} takes none (`sees` in the mesh file)"
        return f"no such field of model {model.name}, whose API has no counterpart"
    instead = _INSTEAD if _REFERENCE in given else _OMIT if _TUNES.fullmatch(place) else ""
    return f"no such field of model {model.name}{instead}"


def unknown(original: Original | None, model: Model) -> Iterator[tuple[str, bool]]:
    """The fields that say something and that `model` would not get, in their places' order, and whether an answer may
    depend on each."""
    if original is None:
        return
    for place, given in sorted(original.untranslated.items()):
        if (given in _EMPTY and place not in _ASKS) or not model.takes.isdisjoint((place, f"{place}={given}")):
            continue
        if not (model.translates and model.translates(original, place, given)):
            yield place, not _is_harmless(place, given)


def _is_harmless(place: str, given: str) -> bool:
    if place in _OF_MESSAGES or _FORM_NAME.fullmatch(place) or _THOUGHT.fullmatch(place) or _SEALED.fullmatch(place):
        return True
    above, _, name = place.rpartition(".")
    if place == _THINKING:
        return bool(_NO_THINKING_ASKED.fullmatch(given))
    if place == "reasoning":
        return not _EFFORT.search(given)
    if name in (_HARMLESS_WITHIN if above else _HARMLESS_AT_TOP):
        return True
    says_nothing = _SAYS_NOTHING.get(name)
    return bool(says_nothing and says_nothing.fullmatch(given))


def without(request: Request, model: Model) -> tuple[Request, tuple[str, ...]]:
    """The request without such fields, and their names: `reasoning_effort`, `messages[].name`. Fields on which no
    answer depends are named too where they stand at the top. Others are left for the checks that refuse them."""
    drawn = {name: _UNSET[name] for name in _DRAWS if _is_left_out(name, request.sampling, model)}
    gone, own = list(_places(request, model)), request.original
    if own and gone:
        left = {place for place in gone if _TUNES.fullmatch(place)}
        rest = {place: given for place, given in own.untranslated.items() if place not in left}
        own = replace(own, untranslated=rest)
    omitted = dict.fromkeys((*drawn, *(_INDEX.sub("[]", place) for place in gone)))
    return replace(request, sampling=replace(request.sampling, **drawn), original=own), tuple(omitted)


def _is_left_out(name: str, sampling: Sampling, model: Model) -> bool:
    feature = _DRAWS[name]
    lacks = name in model.lacks or (feature is not None and feature not in model.features)
    return lacks and getattr(sampling, name) != _UNSET[name]


def _places(request: Request, model: Model) -> Iterator[str]:
    for place, matters in unknown(request.original, model):
        if _TUNES.fullmatch(place) or not (matters or "." in place or "[" in place or _is_said(place, request, model)):
            yield place


def _is_said(place: str, request: Request, model: Model) -> bool:
    """Whether the model gets its own API's words."""
    given = request.original.untranslated[place] if request.original else ""
    return model.takes.issuperset(counterparts.EFFORTS) and counterparts.names_user(place, given)
