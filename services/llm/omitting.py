"""Leaving out what a model's API has no field for, where the request wants that: only what tunes an answer.

What changes the question is never left out: another number of answers, kinds of output, messages, parts, tools, forms,
where an answer ends, and any field that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from services.llm.dialects import counterparts
from services.llm.engine import Feature, Model, Request, Sampling
from services.llm.untranslated import unknown

# How much a model thinks and writes, how soon and at which price.
_TUNES = re.compile(
    r"reasoning(\.(effort|summary|max_tokens|exclude|enabled))?|reasoning_effort|include_reasoning|thinking|enable_thinking"
    r"|thinking_budget|verbosity|text\.verbosity|output_config\.effort|service_tier|speed|prediction|top_a|usage"
    r"|messages\[\d+\]\.name|tools\[\d+\]\.(function\.)?(input_examples|eager_input_streaming)"
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


def without(request: Request, model: Model) -> tuple[Request, tuple[str, ...]]:
    """The request without such fields, and their names: `reasoning_effort`, `messages[].name`. Fields on which no
    answer depends are named too where they stand at the top. Others are left for the checks that refuse them."""
    drawn = {name: _UNSET[name] for name in _DRAWS if _is_left_out(name, request.sampling, model)}
    gone, own = list(_places(request, model)), request.original
    if own and gone:
        left = {place for place in gone if _TUNES.fullmatch(place)}
        rest = {place: given for place, given in own.untranslated.items() if place not in left}
        own = replace(own, untranslated=rest)
    told = dict.fromkeys((*drawn, *(_INDEX.sub("[]", place) for place in gone)))
    return replace(request, sampling=replace(request.sampling, **drawn), original=own), tuple(told)


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
