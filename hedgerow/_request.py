"""Options to protos. Refuses what can never work before it is sent; all else is for the gateway to judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message as Proto

from hedgerow._errors import InvalidArgument, invalid
from hedgerow._given import fitted, schema_text, tool_of, turns_of
from hedgerow._media import SHORTER_AUDIO, read, read_all
from hedgerow._options import GuardedThing, Media, Message, Messages, QuestionKind
from hedgerow._speech import AudioFormat
from hedgerow._tools import MeshTool, Tool
from hedgerow.audio.v1 import audio_pb2
from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2

_ROLES = {
    "system": chat_pb2.ROLE_SYSTEM,
    "user": chat_pb2.ROLE_USER,
    "assistant": chat_pb2.ROLE_ASSISTANT,
    "tool": chat_pb2.ROLE_TOOL,
}
_MODES = {
    "auto": chat_pb2.TOOL_MODE_AUTO,
    "none": chat_pb2.TOOL_MODE_NONE,
    "required": chat_pb2.TOOL_MODE_REQUIRED,
}
_TIERS = {"fast": pb.TIER_FAST, "balanced": pb.TIER_BALANCED, "quality": pb.TIER_QUALITY}
_PRIORITIES = {"normal": False, "realtime": True}
_QUESTION_KINDS = {
    "sampled": pb.QUESTION_KIND_SAMPLED,
    "time_bound": pb.QUESTION_KIND_TIME_BOUND,
    "personal": pb.QUESTION_KIND_PERSONAL,
}
_CACHE = {
    "auto": pb.CachePolicy(),
    "use": pb.CachePolicy(use=pb.CACHE_USE_ANY),
    "exact": pb.CachePolicy(use=pb.CACHE_USE_EXACT),
    "bypass": pb.CachePolicy(bypass=True),
}
_SCOPES = {"tenant": pb.CACHE_SCOPE_TENANT, "user": pb.CACHE_SCOPE_USER}
_VERIFIERS = {
    "rules": pb.VERIFIER_RULES,
    "form": pb.VERIFIER_FORM,
    "logprobs": pb.VERIFIER_LOGPROBS,
    "judge": pb.VERIFIER_JUDGE,
}
_GUARD_ACTIONS = {"mask": pb.GUARD_ACTION_MASK, "refuse": pb.GUARD_ACTION_REFUSE}
_GUARDED = {field.name: field for field in pb.GuardPolicy.DESCRIPTOR.fields}
_DIETS = {"off": pb.DIET_OFF, "system": pb.DIET_SYSTEM, "all": pb.DIET_ALL}
_TRUNCATIONS = {"auto": pb.TRUNCATION_AUTO, "disabled": pb.TRUNCATION_DISABLED}
_UNTRANSLATED = {"refuse": pb.UNTRANSLATED_REFUSE, "omit": pb.UNTRANSLATED_OMIT}
_BLOCK_BYTES = 64 * 1024  # whole samples of every PCM encoding
_ENCODINGS = {
    "pcm_s16le": audio_pb2.ENCODING_PCM_S16LE,
    "pcm_f32le": audio_pb2.ENCODING_PCM_F32LE,
    "opus": audio_pb2.ENCODING_OPUS,
}


def generate_request(
    messages: Messages | None = None,
    *,
    spoken: bool = False,
    images: Media | Sequence[Media] = (),
    audio: Media | None = None,
    system: str | None = None,
    tier: str | None = None,
    model: str | None = None,
    budget_ms: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int | None = None,
    json_schema: str | Mapping[str, Any] | type | None = None,
    regex: str | None = None,
    choice: Sequence[str] | None = None,
    grammar: str | None = None,
    cache: str = "auto",
    min_similarity: float | None = None,
    cache_allow: Sequence[QuestionKind] = (),
    cache_category: str | None = None,
    cache_scope: str | None = None,
    end_user: str | Sequence[str] = (),
    hit_chars_per_s: float | None = None,
    first_token_ms: int | None = None,
    priority: str = "normal",
    attempt: int = 0,
    single_attempt: bool = False,
    max_cost_usd: float | None = None,
    tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]] = (),
    tool_choice: str | None = None,
    parallel_tool_calls: bool | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    logit_bias: Mapping[int, float] = MappingProxyType({}),
    top_logprobs: int | None = None,
    diet: str | None = None,
    truncation: str | None = None,
    untranslated: str | None = None,
    system_prompt: str | None = None,
    cascade: Sequence[str] | None = None,
    cascade_at_once: bool = False,
    repair: bool | None = None,
    idempotency_key: str | None = None,
    mesh_tools: Sequence[MeshTool | str] = (),
    tool_steps: int | None = None,
    tool_calls: int | None = None,
    guard: Mapping[GuardedThing, str] = MappingProxyType({}),
) -> pb.GenerateRequest:
    """A request, or `InvalidArgument`. Where the question is `spoken`, it needs no messages."""
    request = pb.GenerateRequest(tier=_TIERS[one_of("tier", tier, _TIERS)] if tier else None)
    for index, message in enumerate(_turns(messages, system, spoken or audio is not None)):
        role = _ROLES[one_of(f"messages[{index}].role", message.role, _ROLES)]
        _set_turn(request.messages.add(role=role), f"messages[{index}].", message)
    request.images.extend(pb.Image(data=data) for data in read_all("images", images))
    if audio is not None:
        request.audio.data = read("audio", audio)
    set_fields(request, "", model=model, budget_ms=budget_ms, first_token_budget_ms=first_token_ms)
    request.realtime = _PRIORITIES[one_of("priority", priority, _PRIORITIES)]
    set_fields(request, "", attempt=attempt, single_attempt=single_attempt)
    set_fields(request, "", max_cost_usd=max_cost_usd, parallel_tool_calls=parallel_tool_calls)
    set_fields(request, "", idempotency_key=idempotency_key)
    _set_tools(request, tools, tool_choice)
    _add_mesh_tools(request, mesh_tools)
    set_fields(request.tool_limits, "tool_", steps=tool_steps, calls=tool_calls)
    set_fields(request.sampling, "", max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    set_fields(request.sampling, "", frequency_penalty=frequency_penalty, presence_penalty=presence_penalty)
    set_fields(request.sampling, "", top_logprobs=top_logprobs)
    for token, bias in logit_bias.items():
        set_fields(request.sampling.logit_bias.add(), f"logit_bias[{token}].", token=token, bias=bias)
    with _field("stop"):
        request.sampling.stop.extend([stop] if isinstance(stop, str) else stop)
    _set_format(request, choice, json_schema=schema_text("json_schema", json_schema), regex=regex, grammar=grammar)
    request.cache.CopyFrom(_CACHE[one_of("cache", cache, _CACHE)])
    set_fields(request.cache, "cache_", category=cache_category)
    set_fields(request.cache, "", min_similarity=min_similarity, hit_chars_per_s=hit_chars_per_s)
    if cache_scope is not None:
        request.cache.scope = _SCOPES[one_of("cache_scope", cache_scope, _SCOPES)]
    with _field("end_user"):
        request.end_user.extend([end_user] if isinstance(end_user, str) else end_user or ())
    request.cache.allow.extend(_QUESTION_KINDS[one_of("cache_allow", kind, _QUESTION_KINDS)] for kind in cache_allow)
    if cascade is not None:
        request.cascade.SetInParent()
        request.cascade.verifiers.extend(_VERIFIERS[one_of("cascade", name, _VERIFIERS)] for name in cascade)
        request.cascade.at_once = cascade_at_once
    elif cascade_at_once:
        raise invalid("cascade_at_once", "with a cascade", "none")
    set_fields(request, "", repair=repair)
    if untranslated is not None:
        request.untranslated = _UNTRANSLATED[one_of("untranslated", untranslated, _UNTRANSLATED)]
    for thing, action in guard.items():
        chosen = _GUARD_ACTIONS[one_of(f"guard[{thing}]", action, _GUARD_ACTIONS)]
        set_fields(request.guard, "guard.", **{one_of("guard", thing, _GUARDED): chosen})
    _set_prompt(request, diet, truncation, system_prompt)
    return request


def _set_format(request: pb.GenerateRequest, choice: Sequence[str] | None, **texts: str | None) -> None:
    named = [name for name, value in {**texts, "choice": choice}.items() if value is not None]
    if len(named) > 1:
        raise invalid("response_format", "one of json_schema, regex, choice and grammar", " and ".join(named))
    set_fields(request.response_format, "", **texts)
    if choice is not None:
        with _field("choice"):
            request.response_format.choice.values.extend([choice] if isinstance(choice, str) else choice)
            request.response_format.choice.SetInParent()


def _set_turn(turn: chat_pb2.Message, path: str, message: Message) -> None:
    set_fields(turn, path, content=message.content, tool_call_id=message.tool_call_id)
    for index, call in enumerate(message.tool_calls):
        given = {"id": call.id, "name": call.name, "arguments": call.arguments}
        set_fields(turn.tool_calls.add(), f"{path}tool_calls[{index}].", **given)


def _set_prompt(request: pb.GenerateRequest, diet: str | None, truncation: str | None, system: str | None) -> None:
    if diet is not None:
        request.prompt.diet = _DIETS[one_of("diet", diet, _DIETS)]
    if truncation is not None:
        request.prompt.truncation = _TRUNCATIONS[one_of("truncation", truncation, _TRUNCATIONS)]
    set_fields(request.prompt, "prompt.", system=system)


def _set_tools(
    request: pb.GenerateRequest, tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]], choice: str | None
) -> None:
    for index, given in enumerate(tools):
        tool = tool_of(f"tools[{index}]", given)
        schema = tool.parameters if isinstance(tool.parameters, str) else json.dumps(tool.parameters)
        fields = {"name": tool.name, "description": tool.description, "parameters": schema, "strict": tool.strict}
        set_fields(request.tools.add(), f"tools[{index}].", **fields)
    if choice is not None:
        mode = _MODES.get(choice)
        set_fields(request.tool_choice, "tool_choice.", mode=mode, name=None if mode else choice)


def _add_mesh_tools(request: pb.GenerateRequest, tools: Sequence[MeshTool | str]) -> None:
    for index, given in enumerate([tools] if isinstance(tools, str) else tools):
        tool, where = MeshTool(given) if isinstance(given, str) else given, f"mesh_tools[{index}]"
        if bool(tool.name) == bool(tool.source):
            raise invalid(where, "a name or a source", "both" if tool.name else "neither")
        which = {"name": tool.name} if tool.name else {"source": tool.source}
        asked = request.mesh_tools.add()
        set_fields(asked, f"{where}.", arguments=_as_json(tool.arguments), offered=tool.offered or None, **which)


def audio_format(given: AudioFormat) -> audio_pb2.AudioFormat:
    """The form of live audio, or `InvalidArgument`."""
    made = audio_pb2.AudioFormat(encoding=_ENCODINGS[one_of("format.encoding", given.encoding, _ENCODINGS)])
    set_fields(made, "format.", sample_rate_hz=given.sample_rate_hz, channels=given.channels)
    return made


def live_blocks(block: bytes, form: AudioFormat) -> Iterator[bytes]:
    """A block of live audio in parts that fit into messages; an Opus packet stays whole."""
    if form.encoding == "opus":
        yield block
        return
    for at in range(0, len(block), _BLOCK_BYTES):
        yield block[at : at + _BLOCK_BYTES]


def refuse_too_large(request: Proto, way_out: str = "") -> None:
    """Raise `InvalidArgument` for a message that no service would take, with what to do about it."""
    if (size := request.ByteSize()) > MAX_MESSAGE_BYTES:
        raise invalid("request", f"at most {MAX_MESSAGE_BYTES} bytes", size, way_out or _way_out(request))


def _way_out(request: Proto) -> str:
    """What makes a request smaller."""
    if isinstance(request, pb.ConverseRequest):
        request = request.options.request
    if isinstance(request, pb.GenerateBatchRequest):
        return "send fewer requests in one batch"
    if isinstance(request, pb.GenerateRequest) and request.audio.data:
        return SHORTER_AUDIO
    if isinstance(request, pb.GenerateRequest) and not request.images:
        return "send shorter messages"
    if isinstance(request, vision_pb2.InferRequest):
        return "send fewer items at once"
    return "send fewer or smaller images"


def _turns(messages: Messages | None, system: str | None, spoken: bool) -> list[Message]:
    turns = [Message("system", system)] if system is not None else []
    if not messages and spoken:
        return turns
    if messages is None:
        raise invalid("messages", "a question, where there is no audio", None)
    return [*turns, *turns_of(messages)]


def _as_json(schema: str | Mapping[str, Any] | None) -> str | None:
    return schema if schema is None or isinstance(schema, str) else json.dumps(schema)


def one_of(field: str, value: str, allowed: Mapping[str, object]) -> str:
    if value not in allowed:
        *most, last = allowed
        raise invalid(field, f"{', '.join(most)} or {last}", value)
    return value


def set_fields(message: Proto, path: str, **values: object) -> None:
    """Set what is not None."""
    for name, value in values.items():
        if value is not None:
            with _field(f"{path}{name}"):
                try:
                    setattr(message, name, value)
                except TypeError:
                    setattr(message, name, fitted(message, name, path, value))


@contextmanager
def _field(name: str) -> Iterator[None]:
    """Refuses what a field cannot hold: a number too large, broken UTF-8, a value of another type."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{name}: {error}", reason="INVALID_INPUT", metadata={"field": name}) from None
