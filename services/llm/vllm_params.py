"""From a request to vLLM's `SamplingParams`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from services.llm.engine import Constraint, Request
from services.runtime.errors import InvalidInput, shorten


def sampling_params(request: Request, defaults: Mapping[str, Any], default_max_tokens: int, most_tokens: int) -> Any:
    """`defaults` are the model's own; at most `most_tokens` are generated, whatever was asked.

    Raises InvalidInput for a constraint that is not one.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    sampling = request.sampling
    asked = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
    chosen = {**defaults, **{name: value for name, value in asked.items() if value is not None}}
    chosen["max_tokens"] = min(sampling.max_tokens or chosen.get("max_tokens", default_max_tokens), most_tokens)
    return SamplingParams(
        **chosen,
        stop=list(sampling.stop),
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=_structured_outputs(request.constraint) if request.constraint else None,
    )


def _structured_outputs(constraint: Constraint) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    match constraint.kind:
        case "json_schema":
            return StructuredOutputsParams(json=_schema(constraint.value))
        case "regex":
            return StructuredOutputsParams(regex=constraint.value)
        case "json_object":
            return StructuredOutputsParams(json_object=True)


def _schema(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise InvalidInput("response_format.json_schema", f"JSON ({error})", text) from None
    if not isinstance(schema, dict):
        raise InvalidInput("response_format.json_schema", "a JSON object", type(schema).__name__)
    return schema


def refusal(request: Request, error: Exception) -> InvalidInput:
    """What vLLM's own check of a request says. Ours come first, so what is left is nearly always the constraint."""
    said = _said(error)
    if request.constraint is None:
        return InvalidInput("request", f"what the engine takes ({said})", "another")
    return InvalidInput(
        f"response_format.{request.constraint.kind}", f"what the engine can follow ({said})", request.constraint.value
    )


def template_refusal(error: Exception) -> InvalidInput:
    """What the model's chat template says: some take no system message, or no two turns of one role."""
    return InvalidInput("messages", f"what the model's chat template takes ({_said(error)})", "others")


def _said(error: Exception) -> str:
    return shorten(" ".join(str(error).split()), 160)
