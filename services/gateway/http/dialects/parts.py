"""Reads the content of messages: text, pictures, recordings and documents, in the format of OpenAI's chat
completions."""

from __future__ import annotations

from collections.abc import Collection

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.messages import NO_TEXT, separator
from services.gateway.http.fields import Fields, from_base64
from services.runtime.errors import InvalidInput

_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")
AUDIO = "input_audio"
_LEFT_PICTURES = (*_PICTURES, "image")  # of chat completions, Responses, and Messages
_DOCUMENTS = ("file", "input_file", "document", *_LEFT_PICTURES)
_ROLES_WITH_DOCUMENTS = (chat_pb2.ROLE_USER, chat_pb2.ROLE_TOOL)
_CONTENT = "a string, or an array of parts"
_SHOWN = 64  # characters, of a URL without data


def put_content(message: chat_pb2.Message, given: Fields) -> None:
    """Read a message's content: a text, or parts. Parts that are only text become a text."""
    content = given.raw("content")
    if content is None:
        return
    if isinstance(content, str):
        message.content = content
        return
    if not isinstance(content, list):
        raise given.wrong("content", _CONTENT)
    users = message.role == chat_pb2.ROLE_USER
    read = given.objects("content")
    parts = [read_part(part, media=users) for part in read]
    note_documents(message, parts, read)
    if all(part.WhichOneof("kind") == "text" for part in parts):
        message.content = "".join(part.text for part in parts)
    else:
        message.parts.extend(parts)


def settle_blank(request: pb.GenerateRequest, given: Fields) -> None:
    """Handle a last message without text, which was read from `given`. OpenAI's API allows it, the proto does not: an
    assistant's turn is removed, and a user's turn is left for a provider. Raises `InvalidInput` for a user's turn
    without `content`."""
    message = request.messages[-1]
    text = message.content
    if message.parts or message.tool_calls or (text and not text.isspace()):
        return
    if message.role == chat_pb2.ROLE_ASSISTANT:
        del request.messages[-1]
    elif message.role == chat_pb2.ROLE_USER:
        if given.seen("content") is None:
            raise given.wrong("content", _CONTENT)
        message.content = NO_TEXT
        given.leave()


def is_inline(picture: Fields) -> bool:
    """Whether a picture is in the request: others are to be fetched, or lie at the provider."""
    given = picture.seen("image_url")
    url = given.get("url") if isinstance(given, dict) else given
    return picture.seen("file_id") is None and (not isinstance(url, str) or url[:5].lower() == "data:")


def read_part(part: Fields, *, media: bool = True) -> chat_pb2.Part:
    """A text, and with `media` a picture in a `data:` URL or a recording. Any other kind is left for the provider."""
    kind = part.needed("type")
    if kind in _TEXTS:
        return chat_pb2.Part(text=part.needed("text"))
    if kind == "refusal":
        return chat_pb2.Part(text=part.needed("refusal"))
    if kind == "thinking":  # Mistral's, which other models do not read
        return chat_pb2.Part(text="")
    if media and kind in _PICTURES and is_inline(part):
        return chat_pb2.Part(image=_picture(part))
    if media and kind == AUDIO:
        audio = part.object(AUDIO)
        if audio is None:
            raise part.wrong(AUDIO, "an object")
        return chat_pb2.Part(audio=audio.base64("data"))
    return chat_pb2.Part(text=leave_part(part, kind))


def note_documents(message: chat_pb2.Message, parts: Collection[chat_pb2.Part], read: Collection[Fields]) -> None:
    """Note where documents, and pictures that were left, stand in the text of a user's message or of a result, whose
    `parts` have been read from `read`. A provider of the same API gets them as they are, and one of another API in its
    own words."""
    if message.role not in _ROLES_WITH_DOCUMENTS:
        return
    at, between = 0, len(separator(parts))
    for part, given in zip(parts, read, strict=True):
        at += between if at and part.text else 0
        if part.HasField("text") and (kind := given.seen("type")) in _DOCUMENTS:
            place, end = given.at("")[:-1], at + len(part.text)
            message.documents.add(place=place, begin=at, end=end, picture=kind in _LEFT_PICTURES)
        at += len(part.text)


def leave_part(part: Fields, kind: str) -> str:
    """Leave a part for a provider of the same API. Returns its placeholder, so that parts can be counted and compared.
    No model reads it: a model of another API refuses the part by its path."""
    part.leave()
    return f"[{kind[:64]}]"


def _picture(part: Fields) -> bytes:
    """The picture of a part: the URL is in an object in chat completions, and a text in Responses."""
    if isinstance(part.raw("image_url"), dict) and (given := part.object("image_url")):
        return from_data_url(given.at("url"), given.needed("url"))
    return from_data_url(part.at("image_url"), part.needed("image_url"))


def from_data_url(path: str, url: str) -> bytes:
    """The bytes in a `data:` URL. Other URLs are not fetched, because callers must not choose addresses that this
    gateway calls."""
    comma = url.find(",")  # what follows is long, and is copied only once
    scheme, _, kind = url[: comma if comma >= 0 else _SHOWN].partition(":")
    if scheme.lower() != "data":
        raise InvalidInput(path, "a data: URL; others are not fetched", f"{scheme[:16]}:")
    if comma < 0 or not kind.lower().endswith(";base64"):
        raise InvalidInput(path, "a data: URL in base64", f"data:{kind[:40]}")
    return from_base64(path, url[comma + 1 :])
