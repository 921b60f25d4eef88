"""Messages that are not: random bytes, messages cut off in the middle, and messages with a few bits turned.

Seeded; valid messages are made from the descriptors, so that a new field is covered automatically.
"""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_DEPTH = 4


def malformed(descriptor: Descriptor, rng: random.Random, example: Message | None = None) -> bytes:
    """Bytes for a request of this type, half of them made from `example`. Some happen to be valid: see `parses`."""
    source = example if example and rng.random() < 0.5 else _filled(descriptor, rng, _DEPTH)
    valid = source.SerializeToString()
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(64))
        case 1:
            return valid[: rng.randrange(len(valid) + 1)]
        case 2:
            return valid + rng.randbytes(1 + rng.randrange(8))
        case _:
            return _turned(valid, rng)


def parses(descriptor: Descriptor, raw: bytes) -> bool:
    try:
        GetMessageClass(descriptor).FromString(raw)
    except DecodeError:
        return False
    return True


def _turned(raw: bytes, rng: random.Random) -> bytes:
    turned = bytearray(raw)
    for _ in range(min(len(turned), 1 + rng.randrange(4))):
        turned[rng.randrange(len(turned))] ^= 1 << rng.randrange(8)
    return bytes(turned)


def _filled(descriptor: Descriptor, rng: random.Random, depth: int) -> Message:
    """A valid message with some of its fields."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if rng.random() < 0.3 or (field.message_type and not depth):
            continue
        if field.message_type:
            inner = _filled(field.message_type, rng, depth - 1)
            _put(getattr(message, field.name), inner, field)
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field, rng))
        else:
            setattr(message, field.name, _value(field, rng))
    return message


def _put(target: Any, inner: Any, field: FieldDescriptor) -> None:
    if field.message_type.GetOptions().map_entry:
        target[inner.key] = inner.value
    elif field.is_repeated:
        target.append(inner)
    else:
        target.CopyFrom(inner)


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = "".join(rng.choices('ab ß漢{}"', k=rng.randrange(12)))
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice((0.0, 0.5, -1.0, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        case _:
            return rng.choice((0, 1, 100, 2**31 - 1))
