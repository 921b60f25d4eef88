"""A question to its proto. Refuses what can never work before it is sent; all else is for the gateway to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from google.protobuf.message import Message as Proto

from hedgerow._chat_input import mapping_of, schema_text, tool_of, turns_of
from hedgerow._errors import invalid
from hedgerow._fields import one_of, refusing, set_fields
from hedgerow._media import SHORTER_AUDIO, read, read_all
from hedgerow._option_types import MeshOptions
from hedgerow._options import Media, Message, Messages
from hedgerow._request_options import set_options
from hedgerow._speech import AudioFormat
from hedgerow._tools import Tool
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
    model: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] | None = None,
    seed: int | None = None,
    json_schema: str | Mapping[str, Any] | type | None = None,
    regex: str | None = None,
    choice: Sequence[str] | None = None,
    grammar: str | None = None,
    tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]] | None = None,
    tool_choice: str | None = None,
    parallel_tool_calls: bool | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    top_logprobs: int | None = None,
    **options: Unpack[MeshOptions],
) -> pb.GenerateRequest:
    """A request, or `InvalidArgument`. Where the question is `spoken`, it needs no messages."""
    request = pb.GenerateRequest()
    for index, message in enumerate(_turns(messages, system, spoken or audio is not None)):
        role = _ROLES[one_of(f"messages[{index}].role", message.role, _ROLES)]
        _set_turn(request.messages.add(role=role), f"messages[{index}].", message)
    request.images.extend(pb.Image(data=data) for data in read_all("images", images))
    if audio is not None:
        request.audio.data = read("audio", audio)
    set_fields(request, "", model=model, parallel_tool_calls=parallel_tool_calls)
    _set_tools(request, tools or (), tool_choice)
    set_fields(request.sampling, "", max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    set_fields(request.sampling, "", frequency_penalty=frequency_penalty, presence_penalty=presence_penalty)
    set_fields(request.sampling, "", top_logprobs=top_logprobs)
    for token, bias in mapping_of("logit_bias", logit_bias or {}).items():
        set_fields(request.sampling.logit_bias.add(), f"logit_bias[{token}].", token=token, bias=bias)
    with refusing("stop"):
        request.sampling.stop.extend([stop] if isinstance(stop, str) else stop or ())
    _set_format(request, choice, json_schema=schema_text("json_schema", json_schema), regex=regex, grammar=grammar)
    set_options(request, options)
    return request


def _set_format(request: pb.GenerateRequest, choice: Sequence[str] | None, **texts: str | None) -> None:
    named = [name for name, value in {**texts, "choice": choice}.items() if value is not None]
    if len(named) > 1:
        raise invalid("response_format", "one of json_schema, regex, choice and grammar", " and ".join(named))
    set_fields(request.response_format, "", **texts)
    if choice is not None:
        with refusing("choice"):
            request.response_format.choice.values.extend([choice] if isinstance(choice, str) else choice)
            request.response_format.choice.SetInParent()


def _set_turn(turn: chat_pb2.Message, path: str, message: Message) -> None:
    set_fields(turn, path, content=message.content, tool_call_id=message.tool_call_id)
    for index, call in enumerate(message.tool_calls):
        given = {"id": call.id, "name": call.name, "arguments": call.arguments}
        set_fields(turn.tool_calls.add(), f"{path}tool_calls[{index}].", **given)


def _set_tools(
    request: pb.GenerateRequest, tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]], choice: str | None
) -> None:
    for index, given in enumerate(tools):
        tool = tool_of(f"tools[{index}]", given)
        schema = schema_text(f"tools[{index}].parameters", tool.parameters)
        fields = {"name": tool.name, "description": tool.description, "parameters": schema, "strict": tool.strict}
        set_fields(request.tools.add(), f"tools[{index}].", **fields)
    if choice is not None:
        mode = _MODES.get(choice) if isinstance(choice, str) else None
        set_fields(request.tool_choice, "tool_choice.", mode=mode, name=None if mode else choice)


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
    """How to make the request smaller."""
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
