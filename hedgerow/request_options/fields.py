"""Options in the contract: the field of each, and the number that a word stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import RequestOption

_CACHE_USES = {"exact": pb.CACHE_USE_EXACT, "use": pb.CACHE_USE_ANY}


def numbers(enum: EnumDescriptor) -> dict[str, Any]:
    """The values of an enum by their words: `TIER_FAST` is `fast`. The one that is not specified has none."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}


VERIFIERS = numbers(pb.Verifier.DESCRIPTOR)
GUARD_ACTIONS = numbers(pb.GuardAction.DESCRIPTOR)
GUARDED = tuple(field.name for field in pb.GuardPolicy.DESCRIPTOR.fields)


def field_of(option: RequestOption) -> FieldDescriptor:
    """The field of an option that has one."""
    message: Any = pb.GenerateRequest.DESCRIPTOR
    *path, name = option.place.split(".")
    for part in path:
        message = message.fields_by_name[part].message_type
    field: FieldDescriptor = message.fields_by_name[name]
    return field


def word_values(option: RequestOption, words: tuple[str, ...]) -> Mapping[str, Any]:
    """The value that each word stands for in the field: the word itself, where the field is a message. A word that the
    enum does not have, `auto` of the tier, stands for the value that is not specified."""
    field = field_of(option)
    if field.message_type:
        return {word: word for word in words}
    if field.enum_type is None:
        return {word: word == option.words[1] for word in words}
    known = numbers(field.enum_type)
    return {word: known.get(word, 0) for word in words}


def holder(request: pb.GenerateRequest, option: RequestOption) -> tuple[Any, str]:
    """The message that holds an option's field, and the name of the field in it."""
    path, _, name = option.place.rpartition(".")
    return (getattr(request, path) if path else request), name


def set_cache(policy: pb.CachePolicy, word: str) -> None:
    """Which stored answers are wanted."""
    policy.bypass = word == "bypass"
    policy.use = _CACHE_USES.get(word, pb.CACHE_USE_UNSPECIFIED)
