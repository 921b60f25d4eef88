"""Documents and pictures of a conversation, from the words of one API to those of another: `file` and `image_url` of
OpenAI's chat completions, `input_file` and `input_image` of its Responses, `document` and `image` of Anthropic's
Messages. Pictures that a user's message holds are not among them: the contract has a place for these.

What is not the same in both is refused: citations and notes on a document, a file that a provider has stored for
Anthropic's API, a stored picture, a document's address for chat completions, and types of files that Messages lacks. To
OpenAI's models a document of text is text, after its title.

Sources: https://developers.openai.com/api/docs/guides/pdf-files,
https://developers.openai.com/api/docs/guides/images-vision,
https://platform.claude.com/docs/en/build-with-claude/pdf-support and
https://platform.claude.com/docs/en/build-with-claude/vision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pybase64

from services.llm.dialects.media import image_type
from services.llm.engine import Original
from services.runtime.errors import InvalidInput

_TYPES = {  # of documents, and of pictures
    "chat_completions": ("file", "image_url"),
    "responses": ("input_file", "input_image"),
    "messages": ("document", "image"),
}
_PICTURES = frozenset(picture for _, picture in _TYPES.values())
_HARMLESS = ("type", "cache_control", "prompt_cache_breakpoint")
_WITHOUT_CITATIONS = (None, {"enabled": False})
_PDF, _PLAIN = "application/pdf", "text/plain"
_DATA = re.compile(r"data:([\w.+-]{1,64}/[\w.+-]{1,64})?[^,]{0,256};base64,", re.IGNORECASE)
_BLANKS = str.maketrans("", "", "\t\n\f\r ")
_BEGINNING = 64  # characters in base64, which say the type of a picture


@dataclass(frozen=True, slots=True)
class _Document:
    """A document. One of the fields but `title` has it; `data` is a `data:` URL."""

    title: str = ""
    data: str = ""
    text: str = ""
    url: str = ""
    file_id: str = ""  # of OpenAI's files


def takes(original: Original, place: str, given: str, api: str, *, sees: bool) -> bool:
    """Whether the field at `place`, whose JSON is `given`, is a document or a picture of a message that models of `api`
    get. `sees`: whether the model takes pictures."""
    if place not in original.documents or (not sees and is_picture(given)):
        return False
    try:
        translated(place, given, api)
    except InvalidInput:
        return False
    return True


def is_picture(given: str) -> bool:
    """Whether a part, whose JSON is `given`, is a picture in any API's words."""
    return json.loads(given).get("type") in _PICTURES


def picture_data(given: str) -> bytes:
    """The picture in a part, whose JSON is `given`; nothing where it holds none."""
    try:
        read = source("", _picture_url(json.loads(given)))
        return _decoded("", read["data"]) if _is_picture(read) else b""
    except (AttributeError, KeyError, TypeError, InvalidInput):
        return b""


def translated(place: str, given: str, api: str) -> dict[str, Any]:
    """The part in the words of `api` for the part at `place`, whose JSON is `given`. Raises InvalidInput where it has
    no counterpart."""
    part = json.loads(given)
    if part.get("type") in _TYPES[api]:
        return dict(part)
    if part.get("type") == "file" and api == "messages":
        return from_file(f"{place}.file", part.get("file"))
    try:
        if part["type"] in _PICTURES:
            where = f"{place}.{'source' if part['type'] == 'image' else 'image_url'}"
            written = _to_picture(source(where, _picture_url(part)), _detail(part), api)
        else:
            document = _read(part)
            written = _write(place, document, api) if document else None
    except (AttributeError, KeyError, TypeError):
        written = None
    if written is None:
        raise InvalidInput(place, "a document or a picture that the model's API has, too", str(part.get("type")))
    return written


def _picture_url(part: Mapping[str, Any]) -> str:
    """The address of a picture, or a `data:` URL. Raises errors of lookups for what has neither."""
    if part["type"] != "image":
        given = part["image_url"]
        return str(given["url"] if isinstance(given, dict) else given)
    place = part["source"]
    return f"data:image;base64,{place['data']}" if place["type"] == "base64" else str(place["url"])


def _detail(part: Mapping[str, Any]) -> str:
    """How closely OpenAI's models are to look at a picture; empty where its caller does not say."""
    given = part.get("image_url")
    detail = (given if isinstance(given, dict) else part).get("detail")
    return detail if detail in ("low", "high", "original") else ""


def _is_picture(read: Mapping[str, Any]) -> bool:
    return str(read.get("media_type")).startswith("image/")


def _to_picture(read: dict[str, Any], detail: str, api: str) -> dict[str, Any] | None:
    """The picture in the words of `api`, from its `source` in the words of Messages; None where that is no picture."""
    if read["type"] != "url" and not _is_picture(read):
        return None
    if api == "messages":
        return {"type": "image", "source": read}
    url = read["url"] if read["type"] == "url" else f"data:{read['media_type']};base64,{read['data']}"
    if api == "responses":
        return {"type": "input_image", "image_url": url, "detail": detail or "auto"}
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}


def _read(part: Mapping[str, Any]) -> _Document | None:
    """The document; None for one with fields that other APIs lack. Raises errors of lookups for what is none."""
    match part["type"]:
        case "file" if _has_only(part, "file"):
            return _file(part["file"])
        case "input_file" if part.get("detail") in (None, "auto"):
            return _file({name: given for name, given in part.items() if name != "detail"})
        case "document" if _has_only(part, "source", "title", "citations", "context"):
            is_plain = not part.get("context") and part.get("citations") in _WITHOUT_CITATIONS
            return _source(part.get("title") or "", part["source"]) if is_plain else None
    return None


def _has_only(given: Mapping[str, Any], *names: str) -> bool:
    return all(name in names or name in _HARMLESS or value is None for name, value in given.items())


def _file(given: Mapping[str, Any]) -> _Document | None:
    ways = {"file_data": "data", "file_url": "url", "file_id": "file_id"}
    said = [name for name in ways if given.get(name)]
    if len(said) != 1 or not _has_only(given, "filename", *said):
        return None
    return _Document(given.get("filename") or "", **{ways[said[0]]: given[said[0]]})


def _source(title: str, source: Mapping[str, Any]) -> _Document | None:
    match source["type"]:
        case "base64" if source["media_type"] == _PDF:
            return _Document(title, data=f"data:{_PDF};base64,{source['data']}")
        case "text":
            return _Document(title, text=source["data"])
        case "url":
            return _Document(title, url=source["url"])
    return None


def _write(place: str, document: _Document, api: str) -> dict[str, Any] | None:
    match api:
        case "messages":
            return _to_document(place, document)
        case "responses":
            return _to_input_file(document)
    return _to_file(document)


def _to_file(document: _Document) -> dict[str, Any] | None:
    if document.text:
        return {"type": "text", "text": _titled(document)}
    if document.data:
        return {"type": "file", "file": {"filename": _filename(document), "file_data": document.data}}
    return {"type": "file", "file": {"file_id": document.file_id}} if document.file_id else None


def _to_input_file(document: _Document) -> dict[str, Any]:
    if document.text:
        return {"type": "input_text", "text": _titled(document)}
    if document.data:
        return {"type": "input_file", "filename": _filename(document), "file_data": document.data}
    where = {"file_url": document.url} if document.url else {"file_id": document.file_id}
    return {"type": "input_file", **where}


def _to_document(place: str, document: _Document) -> dict[str, Any] | None:
    title = {"title": document.title} if document.title else {}
    if document.url:
        return {"type": "document", "source": {"type": "url", "url": document.url}, **title}
    if not document.data:
        return None
    block = from_file(place, {"file_data": document.data, "filename": document.title or None})
    return block if block["source"].get("media_type") in (_PDF, _PLAIN) else None


def _titled(document: _Document) -> str:
    return f"{document.title}\n\n{document.text}" if document.title else document.text


def _filename(document: _Document) -> str:
    """OpenAI's API requires a name, and knows a PDF by its ending."""
    name = document.title or "document"
    is_pdf = document.data[:64].lower().startswith(f"data:{_PDF}")
    return f"{name}.pdf" if is_pdf and not name.lower().endswith(".pdf") else name


def from_file(where: str, file: Any) -> dict[str, Any]:
    """A PDF, a text or a picture for Messages, from `file_data`, or by a URL in `file_id`, as LiteLLM has it."""
    if not isinstance(file, dict):
        raise InvalidInput(where, "an object", type(file).__name__)
    if not isinstance(file.get("file_data"), str):
        got = str(file.get("file_id") or "none")
        if got.startswith(("https://", "http://")):
            return {"type": "document", "source": {"type": "url", "url": got}}
        raise InvalidInput(f"{where}.file_data", "the file as a data: URL, or a URL in file_id", got)
    read = source(f"{where}.file_data", file["file_data"])
    kind = "image" if _is_picture(read) else "document"
    if read.get("media_type") == _PLAIN:
        read = {"type": "text", "media_type": _PLAIN, "data": _text(f"{where}.file_data", read["data"])}
    title = {"title": file["filename"]} if kind == "document" and isinstance(file.get("filename"), str) else {}
    return {"type": kind, "source": read, **title}


def source(where: str, url: str) -> dict[str, Any]:
    """The place of a file for Messages: in a `data:` URL, or elsewhere."""
    found = _DATA.match(url)
    if not found:
        if url.startswith(("https://", "http://")):
            return {"type": "url", "url": url}
        raise InvalidInput(where, "a data: URL in base64, or an address", url[:40])
    data, kind = url[found.end() :].translate(_BLANKS), (found[1] or "").lower()
    if kind.startswith("image/") or not kind:  # callers often name another type of picture than it is
        kind = image_type(_decoded(where, data[:_BEGINNING]), where)
    return {"type": "base64", "media_type": kind, "data": data}


def _text(where: str, data: str) -> str:
    try:
        return _decoded(where, data).decode()
    except UnicodeDecodeError:
        raise InvalidInput(where, "text in UTF-8", f"{len(data)} characters in base64") from None


def _decoded(where: str, data: str) -> bytes:
    try:
        return pybase64.b64decode(data, validate=True)
    except ValueError:
        raise InvalidInput(where, "base64", f"{len(data)} characters") from None
