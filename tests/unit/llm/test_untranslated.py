"""Fields that a model's API lacks: omitted where the request allows it, refused where that would change more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.llm import features, untranslated
from services.llm.dialects import anthropic_request
from services.llm.dialects.counterparts import EFFORTS
from services.llm.engine import Feature, Message, Model, Original, Request, Sampling
from services.runtime.errors import InvalidInput, NotSupported

ASKED = (Message("user", "Hi"),)
CLAUDE = Model(
    "m", "anthropic", 0, 0, "", False, features=frozenset({Feature.TOOLS, Feature.TOP_K}), lacks=frozenset({"seed"})
)


def request(sampling: Sampling | None = None, **places: str) -> Request:
    own = Original("chat_completions", b"{}", untranslated=places)
    return Request(ASKED, sampling or Sampling(), original=own, omits=True)


def without(asked: Request, model: Model = CLAUDE) -> tuple[Request, tuple[str, ...]]:
    rest, omitted = untranslated.without(asked, model)
    features.check(rest, model)
    untranslated.check(rest.original, model)
    return rest, omitted


@pytest.mark.parametrize(
    ("place", "given", "name"),
    [
        ("reasoning_effort", '"high"', "reasoning_effort"),
        ("reasoning", '{"effort":"high"}', "reasoning"),
        ("thinking", '{"type":"enabled","budget_tokens":1024}', "thinking"),
        ("output_config.effort", '"max"', "output_config.effort"),
        ("service_tier", '"flex"', "service_tier"),
        ("verbosity", '"low"', "verbosity"),
        ("prediction", '{"type":"content","content":"x"}', "prediction"),
        ("messages[3].name", '"ann"', "messages[].name"),
        ("tools[0].input_examples", "[1]", "tools[].input_examples"),
        ("metadata", '{"a":"b"}', "metadata"),
        ("metadata", "[1]", "metadata"),
        ("client_metadata", '{"session_id":"1"}', "client_metadata"),
    ],
)
def test_fields_that_only_tune_an_answer_are_omitted_and_named(place: str, given: str, name: str) -> None:
    rest, omitted = without(request(**{place: given}))
    assert omitted == (name,)
    assert rest.original
    assert not rest.original.untranslated or name.endswith("metadata")


@pytest.mark.parametrize(
    ("place", "given"), [("service_tier", '"priority"'), ("messages[0].name", '"ann"'), ("chat_template_kwargs", "{1}")]
)
def test_without_that_they_are_refused_with_the_remedy(place: str, given: str) -> None:
    remedy = "" if place == "chat_template_kwargs" else " (`untranslated: omit` leaves it out)"
    with pytest.raises(InvalidInput) as refused:
        untranslated.check(request(**{place: given}).original, CLAUDE)
    assert str(refused.value).startswith(f"{place}: no such field of model m{remedy}, got ")


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("user", '"7"'),
        ("messages[0].content[1].cache_control", '{"type":"ephemeral"}'),
        ("messages[1].content[0].thinking", '"Hm"'),
        ("messages[1].content[0].signature", '"c2ln"'),
        ("thinking", '{"type":"disabled"}'),
        ("thinking", '{"type":"adaptive"}'),
        ("thinking", '{"type":"adaptive","display":"omitted"}'),
        ("service_tier", '"auto"'),
        ("speed", '"standard"'),
        ("inference_geo", '"global"'),
        ("response_format.json_schema.name", '"facts"'),
        ("tool_choice.type", '"function"'),
        ("tools[0].eager_input_streaming", "true"),
    ],
)
def test_fields_on_which_no_answer_depends_are_no_error(place: str, given: str) -> None:
    untranslated.check(request(**{place: given}).original, CLAUDE)


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("n", "2"),
        ("modalities", '["text","audio"]'),
        ("audio", '{"voice":"ash"}'),
        ("messages[0].content[1]", '{"type":"file"}'),
        ("messages[1]", '{"role":"function"}'),
        ("tools[0]", '{"type":"web_search"}'),
        ("tool_choice", '"required"'),
        ("response_format.made_up", "1"),
        ("web_search_options", '{"a":1}'),
        ("inference_geo", '"eu"'),
        ("moderation", '{"model":"m"}'),
        ("bad_words", '["x"]'),
        ("made_up", "1"),
    ],
)
def test_fields_that_change_the_question_are_refused_by_name(place: str, given: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        without(request(**{place: given, "reasoning_effort": '"high"'}))
    assert str(refused.value).startswith(f"{place}: no such field of model m, got ")


def test_how_tokens_are_drawn_is_left_out_where_the_model_has_no_such_thing() -> None:
    asked = Sampling(temperature=0.5, seed=1, logit_bias=((7, 1.0),), top_k=5, min_p=0.1, frequency_penalty=0.5)
    rest, omitted = without(request(asked))
    assert rest.sampling == Sampling(temperature=0.5, top_k=5, frequency_penalty=0.5)
    assert omitted == ("seed", "logit_bias", "min_p")
    same = request(Sampling(seed=1))
    able = Model("m", "openai", 0, 0, "", False)
    assert untranslated.without(same, able) == (same, ())


@pytest.mark.parametrize(
    "sampling",
    [Sampling(top_logprobs=2), Sampling(min_tokens=2), Sampling(stop_token_ids=(2,)), Sampling(ignore_eos=True)],
)
def test_options_for_the_end_and_the_logprobs_of_an_answer_are_refused_not_omitted(sampling: Sampling) -> None:
    with pytest.raises(NotSupported):
        without(request(sampling))


def test_empty_fields_and_repeated_reasoning_are_not_named() -> None:
    own: dict[str, Any] = {"user": '""', "metadata": "{}", "messages[1].reasoning_content": '"Hm"'}
    assert without(request(**own))[1] == ()


@pytest.mark.parametrize(
    ("place", "given"), [("user", '"ann"'), ("safety_identifier", '"ann"'), ("metadata", '{"user_id":"ann"}')]
)
def test_the_end_user_is_named_in_the_words_of_the_models_api(place: str, given: str) -> None:
    model = replace(CLAUDE, takes=EFFORTS)
    rest, omitted = without(request(**{place: given, "verbosity": '"low"', "reasoning_effort": '"low"'}), model)
    assert omitted == ("verbosity",)
    body = anthropic_request.to_body(rest, "m", 9)
    assert (body["metadata"], body["output_config"]) == ({"user_id": "ann"}, {"effort": "low"})


def test_a_field_that_the_model_reads_stays() -> None:
    model = Model("m", "vllm", 0, 0, "", False, takes=frozenset({"reasoning_effort"}))
    rest, omitted = without(request(reasoning_effort='"high"'), model)
    assert (rest.original, omitted) == (request(reasoning_effort='"high"').original, ())
