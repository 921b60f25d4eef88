"""A request as its caller wrote it, for a provider of the same API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.provider_fields import MOST_OBJECTS
from services.gateway.http.dialects.parts import AUDIO
from services.gateway.http.fields import Fields
from services.gateway.http.server.exchange import FOR_PROVIDERS
from services.runtime.errors import InvalidInput
from services.runtime.strict_json import compact

_MOST_HEADERS, _MOST_CHARACTERS = 16, 1_024
_WHOSE = frozenset({"openai-organization", "openai-project"})  # the gateway's own account pays
_TEXTS = ("system", "messages", "input")  # fields with texts of a conversation
PARTS = "messages[].content"  # no place in a body: how its texts are divided
NAMES = "messages[].name"  # no place in a body: names by their places, if no role has two
_OF_GATEWAY = "hedgerow"  # the field that is for the gateway alone


def original(api: chat_pb2.Api, data: bytes, body: Fields, headers: Mapping[str, str]) -> chat_pb2.Original:
    """The words of a request whose `body` has been read from `data`. Raises `InvalidInput` beyond their limits, and for
    a field that a provider might take for another one."""
    for place, usual in body.miswritten():
        raise InvalidInput(place, f"{usual} in lower case", "upper case")
    unread = {place: given for place, given in body.unread().items() if place.partition(".")[0] != _OF_GATEWAY}
    if len(unread) > MOST_OBJECTS:
        raise InvalidInput("body", f"at most {MOST_OBJECTS} items that only a provider reads", len(unread))
    if api == chat_pb2.API_CHAT_COMPLETIONS:
        unread = _with_names_by_role(unread, body.seen("messages"))
    untranslated = {place: compact(given).decode() for place, given in unread.items()}
    if lengths := {place: each for name in _TEXTS for place, each in _side_by_side(name, body.seen(name))}:
        untranslated[PARTS] = compact(lengths).decode()
    return chat_pb2.Original(api=api, body=data, headers=_for_provider(headers), untranslated=untranslated)


def leave_recordings(request: pb.GenerateRequest, body: Fields) -> None:
    """Leave the recordings of a conversation for a provider whose model hears: without an audio service the gateway can
    do nothing else with them."""
    recorded = [each for each in request.messages if any(part.HasField("audio") for part in each.parts)]
    for message in recorded:
        for part in message.parts:
            if part.HasField("audio"):
                part.text = f"[{AUDIO}]"
        if all(part.HasField("text") for part in message.parts):
            message.content = "".join(part.text for part in message.parts)
            del message.parts[:]
    for turn in (turn for name in ("messages", "input") if recorded for turn in body.objects(name)):
        parts = given if isinstance(given := turn.seen("content"), list) else []
        if any(isinstance(each, dict) and each.get("type") == AUDIO for each in parts):
            for each in turn.objects("content"):
                if each.seen("type") == AUDIO:
                    each.leave()


def _with_names_by_role(unread: dict[str, Any], messages: Sequence[Any]) -> dict[str, Any]:
    """The fields, with the names of messages as one field where no role has two names. Names distinguish participants
    of one role (OpenAI's API reference), so a model of another API does without these."""
    if not any(place.endswith("].name") for place in unread):
        return unread
    roles = {
        place: each["role"] for index, each in enumerate(messages) if (place := f"messages[{index}].name") in unread
    }
    named = {(role, compact(unread[place])) for place, role in roles.items()}
    if not roles or len({role for role, _ in named}) < len(named):
        return unread
    rest = {place: given for place, given in unread.items() if place not in roles}
    return {**rest, NAMES: {place: unread[place] for place in roles}}


def _side_by_side(place: str, given: Any) -> Iterator[tuple[str, list[int]]]:
    """The lengths of texts that are parts of one content, by its place. The contract has them as one text, but a model
    may read `["a", "b"]` differently from `"ab"`, so they are different questions."""
    if not isinstance(given, list):
        return
    texts = [each.get("text") for each in given if isinstance(each, dict)]
    lengths = [len(text) for text in texts if isinstance(text, str)]
    if len(lengths) > 1:
        yield place, lengths
    for index, each in enumerate(given):
        for name in ("content", "output") if isinstance(each, dict) else ():
            yield from _side_by_side(f"{place}[{index}].{name}", each.get(name))


def _for_provider(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers for a provider. None identifies the caller: neither keys nor accounts pass."""
    found = {name: text for name, text in headers.items() if name.startswith(FOR_PROVIDERS) and name not in _WHOSE}
    if len(found) > _MOST_HEADERS:
        raise InvalidInput("headers", f"at most {_MOST_HEADERS} for the provider", len(found))
    for name, text in found.items():
        if len(text) > _MOST_CHARACTERS:
            raise InvalidInput(name, f"at most {_MOST_CHARACTERS} characters", len(text))
        if not (text.isascii() and text.isprintable()):
            raise InvalidInput(name, "printable characters of ASCII", ascii(text))
    return found
