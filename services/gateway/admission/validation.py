"""Validates requests before any work is done for them. Every refusal names the field, the limit and the value.

All limits of size and shape are here: services behind the gateway never refuse a request that passed for such a limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission import constraint, messages, provider_fields, tools
from services.gateway.admission.effective import EffectiveSettings, effective_settings
from services.gateway.admission.identity import Tenant
from services.gateway.admission.options import check_options
from services.gateway.admission.question import Question, prompt_tokens, read_model, recording_is
from services.gateway.config import GatewaySettings
from services.gateway.upstream.media import AudioBackend, Media
from services.runtime.errors import InvalidInput, shorten
from services.runtime.limits import LOGIT_BIASES, STOP_CHARACTERS, STOP_TOKENS, STOPS, TOP_K, TOP_LOGPROBS

_LEAST_HEARTBEAT_MS = 100
_ABOVE_ZERO: tuple[_Ranged, ...] = ("top_p", "repetition_penalty")
_USER_NAMES = 8  # the contract's
_VERIFIERS = frozenset(pb.Verifier.values()) - {pb.VERIFIER_UNSPECIFIED}
_GUARD_ACTIONS = frozenset(pb.GuardAction.values())
_Ranged = Literal[
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "top_k",
    "min_p",
    "repetition_penalty",
]
_RANGES: Mapping[_Ranged, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "top_logprobs": (0, TOP_LOGPROBS),
    "top_k": (-1, TOP_K),
    "min_p": (0, 1),
    "repetition_penalty": (0, 2),
}


def validate(request: pb.GenerateRequest, tenant: Tenant, settings: GatewaySettings, media: Media) -> Question:
    """The question of `request`, with the services for its pictures and recording, and the settings that hold for it.
    Its parts are flattened in place. Raises `ModelUnknown`, `InvalidInput` as `check` does, and `FieldDenied`."""
    read_model(request, settings.chat_models)
    sees = media.sees(request.model)
    check(request, settings, sees=sees)
    effective = effective_settings(request, tenant, settings)
    _check_for_tenant(request, tenant, effective)
    pixels = sees and bool(request.images)
    return Question(
        request,
        recording_is(request),
        prompt_tokens(request.messages, request.tools),
        media.vision if request.images and not pixels else None,
        media.audio if request.HasField("audio") else None,
        pixels,
        effective,
    )


def validate_conversation(options: pb.ConverseOptions, settings: GatewaySettings, media: Media) -> AudioBackend:
    """The audio service for a conversation. Raises `InvalidInput` for the first invalid part of it."""
    request = options.request
    read_model(request, settings.chat_models)
    if media.audio is None:
        raise InvalidInput("options", "no conversations while no audio service is configured", "one")
    if request.HasField("audio"):
        raise InvalidInput("options.request.audio", "nothing: what is spoken is the audio", "a recording")
    if request.tools:
        raise InvalidInput("options.request.tools", "none: nothing returns their results", len(request.tools))
    if request.HasField("original"):  # it would not be validated
        raise InvalidInput("options.request.original", "none by gRPC", "one")
    # A placeholder for the speech.
    asked = pb.GenerateRequest()
    asked.CopyFrom(request)
    asked.messages.add(role=chat_pb2.ROLE_USER, content="…")
    check(asked, settings, sees=media.sees(request.model))
    return media.audio


def check(request: pb.GenerateRequest, settings: GatewaySettings, *, sees: bool = False) -> None:
    """Raise `InvalidInput` for the first invalid part of `request`; flatten its parts. `sees`: whether its model has
    vision."""
    written = messages.check(request, settings.max_messages) + tools.check(request, settings.response_format)
    written += len(request.prefix.encode()) + tools.check_mesh(request, settings.tools)
    if request.prefix and (request.HasField("response_format") or request.tools):
        raise InvalidInput("prefix", "none together with response_format or tools", f"{len(request.prefix)} characters")
    if written > settings.max_content_bytes:
        most = f"at most {settings.max_content_bytes} bytes of content"
        raise InvalidInput("messages", most, f"{written} bytes")
    messages.flatten(request)
    if request.HasField("sampling"):
        _check_sampling(request.sampling)
    if request.HasField("response_format"):
        constraint.check(request.response_format, settings.response_format)
        _check_end(request)
    check_call(request)
    _check_prompt(request.prompt, settings)
    if request.HasField("guard"):
        _check_guard(request.guard)
    if request.HasField("cascade"):
        _check_cascade(request)
    _check_end_user(request.end_user)
    if request.images:
        _check_images(request, settings, sees=sees)
    if request.HasField("audio"):
        _check_audio(request, settings)


def check_call(request: pb.GenerateRequest) -> None:
    """Raise `InvalidInput` for the first option of `request` that is outside its limits. Two requests with the same
    idempotency key may differ in some, and only the first is checked as a whole."""
    check_options(request)
    if request.HasField("heartbeat_ms") and request.heartbeat_ms < _LEAST_HEARTBEAT_MS:
        raise InvalidInput("heartbeat_ms", f"at least {_LEAST_HEARTBEAT_MS}", request.heartbeat_ms)


def _check_end_user(names: Sequence[str]) -> None:
    if len(names) > _USER_NAMES:
        raise InvalidInput("end_user", f"at most {_USER_NAMES} names", len(names))
    for index, name in enumerate(names):
        if not name:
            raise InvalidInput(f"end_user[{index}]", "at least 1 character", "none")


def _check_for_tenant(request: pb.GenerateRequest, tenant: Tenant, effective: EffectiveSettings) -> None:
    """Raise `InvalidInput` for a category that the tenant lacks, and for fields that its policies cannot examine;
    `FieldDenied` for fields that it may not use. Sets the provider's `store` field to false, in place, if the tenant
    may not store."""
    if request.cache.category and request.cache.category not in tenant.hits.categories:
        known = ", ".join(sorted(tenant.hits.categories)) or "none is set"
        raise InvalidInput("cache.category", f"one of {known}", shorten(request.cache.category))
    if not request.HasField("original"):
        return
    provider_fields.check(request.original, tenant.provider, tenant.name)
    provider_fields.check_beside(request, effective.guard, form=effective.checks_form)
    provider_fields.settle_store(request.original, tenant.provider, tenant.name)


def _check_prompt(policy: pb.PromptPolicy, settings: GatewaySettings) -> None:
    if policy.whole and policy.truncation == pb.TRUNCATION_AUTO:
        raise InvalidInput("prompt.whole", "none together with TRUNCATION_AUTO", "true")
    if policy.system and policy.system not in settings.system_prompts:
        known = ", ".join(sorted(settings.system_prompts)) or "none is kept here"
        raise InvalidInput("prompt.system", f"one of {known}", policy.system)


def _check_guard(policy: pb.GuardPolicy) -> None:
    for field in policy.DESCRIPTOR.fields:
        if getattr(policy, field.name) not in _GUARD_ACTIONS:
            raise InvalidInput(f"guard.{field.name}", "a GuardAction, 0 to 2", getattr(policy, field.name))
    if policy.injection == pb.GUARD_ACTION_MASK:
        raise InvalidInput(
            "guard.injection", "GUARD_ACTION_REFUSE: an injection has no masked form", "GUARD_ACTION_MASK"
        )


def _check_cascade(request: pb.GenerateRequest) -> None:
    for field in ("model", "tier", "tools", "prefix"):
        if getattr(request, field):
            raise InvalidInput("cascade", f"none together with {field}: the router chooses both models of one", "one")
    for index, verifier in enumerate(request.cascade.verifiers):
        if verifier not in _VERIFIERS:
            raise InvalidInput(f"cascade.verifiers[{index}]", "a Verifier, 1 to 4", verifier)
    least = request.cascade.min_mean_logprob
    if not -math.inf < least <= 0:
        raise InvalidInput("cascade.min_mean_logprob", "at most 0", f"{least:g}")


def _check_images(request: pb.GenerateRequest, settings: GatewaySettings, *, sees: bool) -> None:
    images = request.images
    if not (settings.vision_address or sees):
        blind = f"{request.model} takes none" if request.model else "no model takes one"
        limit = f"none: {blind} (`sees` in the mesh file), and no vision service is configured"
        raise InvalidInput("images", limit, f"{len(images)} images")
    if len(images) > settings.max_images:
        raise InvalidInput("images", f"at most {settings.max_images} images", len(images))
    for index, image in enumerate(images):
        if not image.data:
            raise InvalidInput(f"images[{index}].data", "an encoded picture", "0 bytes")
    total = sum(len(image.data) for image in images)
    if total > settings.max_images_bytes:
        raise InvalidInput("images", f"at most {settings.max_images_bytes} bytes together", f"{total} bytes")


def _check_audio(request: pb.GenerateRequest, settings: GatewaySettings) -> None:
    if not settings.audio_address:
        raise InvalidInput("audio", "none while no audio service is configured", f"{len(request.audio.data)} bytes")
    if not request.audio.data:
        raise InvalidInput("audio.data", "an encoded recording", "0 bytes")


def _check_end(request: pb.GenerateRequest) -> None:
    if request.response_format.HasField("grammar") and (stops := len(request.sampling.stop)):
        raise InvalidInput("sampling.stop", "none together with a grammar, which says where an answer ends", stops)


def _check_sampling(sampling: chat_pb2.Sampling) -> None:
    for name, (low, high) in _RANGES.items():
        if sampling.HasField(name):
            _check_range(f"sampling.{name}", getattr(sampling, name), low, high)
    for above in _ABOVE_ZERO:
        if sampling.HasField(above) and getattr(sampling, above) == 0:
            raise InvalidInput(f"sampling.{above}", "above 0", 0)
    if sampling.HasField("max_tokens") and sampling.max_tokens < 1:
        raise InvalidInput("sampling.max_tokens", "at least 1", sampling.max_tokens)
    if len(sampling.stop) > STOPS:
        raise InvalidInput("sampling.stop", f"at most {STOPS} strings", len(sampling.stop))
    for index, stop in enumerate(sampling.stop):
        if not 1 <= len(stop) <= STOP_CHARACTERS:
            raise InvalidInput(f"sampling.stop[{index}]", f"1 to {STOP_CHARACTERS} characters", len(stop))
    _check_tokens(sampling)
    _check_biases(sampling)


def _check_tokens(sampling: chat_pb2.Sampling) -> None:
    if sampling.HasField("min_tokens"):
        most = sampling.max_tokens if sampling.HasField("max_tokens") else math.inf
        if not 0 <= sampling.min_tokens <= most:
            raise InvalidInput("sampling.min_tokens", "0 to max_tokens", sampling.min_tokens)
    if len(sampling.stop_token_ids) > STOP_TOKENS:
        raise InvalidInput("sampling.stop_token_ids", f"at most {STOP_TOKENS}", len(sampling.stop_token_ids))
    for index, token in enumerate(sampling.stop_token_ids):
        if token < 0:
            raise InvalidInput(f"sampling.stop_token_ids[{index}]", "0 or more", token)


def _check_biases(sampling: chat_pb2.Sampling) -> None:
    biases, seen = sampling.logit_bias, set[int]()
    if len(biases) > LOGIT_BIASES:
        raise InvalidInput("sampling.logit_bias", f"at most {LOGIT_BIASES}", len(biases))
    for index, each in enumerate(biases):
        if each.token < 0 or each.token in seen:
            raise InvalidInput(f"sampling.logit_bias[{index}].token", "0 or more, each once", each.token)
        seen.add(each.token)
        _check_range(f"sampling.logit_bias[{index}].bias", each.bias, -100, 100)


def _check_range(field: str, value: float, low: float, high: float) -> None:
    if math.isnan(value) or not low <= value <= high:
        raise InvalidInput(field, f"{low} to {high}", f"{value:g}")
