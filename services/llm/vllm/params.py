"""From a request to vLLM's `SamplingParams`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from services.llm.engine import Constraint, Request
from services.runtime.errors import InvalidInput, shorten

_log = logging.getLogger(__name__)


def own_sampling(config: Any) -> dict[str, Any]:
    """The sampling parameters of the model's own `generation_config`. `config` is vLLM's `VllmConfig`. With speculation
    vLLM 0.32 refuses `min_p`, and would refuse every request to a model that has one."""
    own: dict[str, Any] = dict(config.model_config.get_diff_sampling_param())
    if config.speculative_config is not None and (least := own.pop("min_p", None)):
        _log.warning("generation_config: min_p %g is left out, because vLLM has none with speculation", least)
    return own


def sampling_params(
    request: Request,
    defaults: Mapping[str, Any],
    default_max_tokens: int | None,
    most_tokens: int,
    structured: Any = None,
    **more: Any,
) -> Any:
    """`defaults` are the model's own; at most `most_tokens` are generated, whatever was asked. `structured` are the
    request's structured outputs, which vLLM has checked; `more` are parameters in vLLM's own terms."""
    from vllm.sampling_params import RequestOutputKind

    sampling = request.sampling
    asked = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logit_bias": dict(sampling.logit_bias) or None,
        "logprobs": sampling.top_logprobs,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "min_tokens": sampling.min_tokens,
        "ignore_eos": sampling.ignore_eos or None,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
    }
    chosen = {**defaults, **{name: value for name, value in asked.items() if value is not None}}
    wanted = sampling.max_tokens or chosen.get("max_tokens") or default_max_tokens
    chosen["max_tokens"] = min(wanted or most_tokens, most_tokens)
    if (least := chosen.get("min_tokens")) is not None:
        chosen["min_tokens"] = min(least, chosen["max_tokens"])  # which may be less than was asked for
    return _checked_params()(
        **chosen, stop=list(sampling.stop), output_kind=RequestOutputKind.DELTA, structured_outputs=structured, **more
    )


@cache
def _checked_params() -> type[Any]:
    """vLLM 0.32 checks structured outputs in its front end's event loop, for every request, before another one is
    served; ours were checked in a thread."""
    from vllm.sampling_params import SamplingParams

    class CheckedParams(SamplingParams):
        def _validate_structured_outputs(self, *_: Any) -> None:
            pass

    return CheckedParams


def structured_outputs(constraint: Constraint, config: Any, tokenizer: Any) -> Any:
    """A constraint in vLLM's form, checked as its front end does; call it on a thread. Raises InvalidInput. `config` is
    its `VllmConfig`."""
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    match constraint.kind:
        case "json_schema":
            structured = StructuredOutputsParams(json=constraint.value)
        case "regex":
            structured = StructuredOutputsParams(regex=constraint.value)
        case "json_object":
            structured = StructuredOutputsParams(json_object=True)
        case "choice":
            structured = StructuredOutputsParams(choice=json.loads(constraint.value))
        case "grammar":
            structured = StructuredOutputsParams(grammar=constraint.value)
    try:
        params = SamplingParams(structured_outputs=structured)
        params.verify(config.model_config, config.speculative_config, config.structured_outputs_config, tokenizer)
    except (VLLMClientError, ValueError, RecursionError) as error:
        raise refused(constraint, str(error)) from None
    return structured


def refusal(request: Request, error: Exception) -> InvalidInput:
    """The error of vLLM's own check of a request. Ours come first, so it is nearly always about the constraint."""
    if request.constraint is None:
        return InvalidInput("request", f"what the engine takes ({_said(error)})", "another")
    return refused(request.constraint, str(error))


def refused(constraint: Constraint, why: str) -> InvalidInput:
    """The engine's error about a constraint that it cannot follow."""
    about = constraint.field
    field = f"{about}.{constraint.kind}" if about == "response_format" else about
    return InvalidInput(field, f"what the engine can follow ({_said(why)})", constraint.value)


def template_refusal(error: Exception) -> InvalidInput:
    """The refusal of the model's chat template: some accept no system message, or no two turns of one role."""
    return InvalidInput("messages", f"what the model's chat template takes ({_said(error)})", "others")


def unreadable_media() -> InvalidInput:
    """vLLM's text about them is about its own code."""
    return InvalidInput("messages", "pictures and recordings that the engine can read", "another")


def _said(error: Exception | str) -> str:
    return shorten(" ".join(str(error).split()), 160)
