"""The original body of a request for a model of the same API, without the fields that a policy has changed: the request
has these itself."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.provider_fields import refuse_left, values_of
from services.gateway.answer.context import RequestContext
from services.runtime.aside import aside, size_in
from services.runtime.strict_json import compact

CONVERSATION = ("messages", "system", "input", "instructions")  # the fields' names in every API
_OF_CONVERSATION = re.compile(r"(messages|system|input)\[|instructions$")
_OF_APPLICATION = {"tools": re.compile(r"tools\["), "system": re.compile(r"system\[|instructions$")}
_SEALED = re.compile(r"\.(signature|data|encrypted_content)$")
_TEXT_FIELDS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
}  # of parts, by their type
FORM = ("response_format", "structured_outputs", "output_config.format", "output_format", "text.format")  # of all APIs


async def original_for_model(context: RequestContext, changed: Collection[str]) -> chat_pb2.Original | None:
    """The original body for the model; None for a request without one. `changed`: fields to leave out, also as
    `object.field`. Raises `InvalidInput` if these have parts that the request lacks."""
    request = context.question.request
    if not request.HasField("original"):
        return None
    masked_texts = {**context.inputs.masked_fields, **context.inputs.masked_texts}
    if not (changed or masked_texts or _is_rewritten(context)):
        return request.original
    changing = partial(_changed, context, request.original, changed, masked_texts)
    return await aside(context.tenant.name, size_in(request.original.body), changing, context.ledger.remaining())


def _changed(
    context: RequestContext, original: chat_pb2.Original, changed: Collection[str], masked_texts: Mapping[str, str]
) -> chat_pb2.Original:
    own = chat_pb2.Original()
    own.CopyFrom(original)
    body = json.loads(own.body)
    replaced = {
        *changed,
        *(CONVERSATION if "messages" in changed or _replaces_conversation(context, own.api, body) else ()),
    }
    kept = {document.place for message in context.inputs.for_model() for document in message.documents}
    refuse_left(original, replaced, kept)
    own.body = compact(with_masks(_without(body, replaced), masked_texts))
    for place, given in original.untranslated.items() if masked_texts else ():
        own.untranslated[place] = compact(with_masks(json.loads(given), masked_texts)).decode()
    return own


def _replaces_conversation(context: RequestContext, api: chat_pb2.Api, body: Mapping[str, Any]) -> bool:
    """Whether the conversation is replaced by the gateway's. Where only masked texts differ, that of the Responses API
    stays the caller's, because a translation would lose reasoning and calls of other tools: unless a masked text spans
    several parts."""
    if _is_rewritten(context) or api != chat_pb2.API_RESPONSES:
        return _is_rewritten(context) or bool(context.inputs.masked_texts)
    given = body.get("input")
    items = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    contents = [item.get(name) for item in items for name in ("content", "output")]
    masked_texts = context.inputs.masked_texts
    return any(_form_masked_text(content, masked_texts) for content in contents if isinstance(content, list))


def _is_rewritten(context: RequestContext) -> bool:
    """Whether models read another conversation than the caller wrote, apart from masked texts."""
    asked, request = context.inputs.asked, context.question.request
    more = asked.context or asked.results or asked.system or context.inputs.transcript
    # Also where a picture or a recording brought nothing: a model without vision or hearing is not sent it.
    others = request.HasField("audio") or (request.images and not context.question.pixels)
    return bool(context.inputs.prompt or context.inputs.has_mesh_tool_calls or more or others)


def _form_masked_text(parts: list[Any], masked_texts: Collection[str]) -> bool:
    """Whether several parts form one of these texts together. The gateway joins the texts of `_TEXT_FIELDS`, and where
    there are none, those of all parts by lines."""
    given = [part for part in parts if isinstance(part, dict)]
    read = [part.get(_TEXT_FIELDS.get(str(part.get("type")), "")) for part in given]
    lines = [part.get("text") or part.get("refusal") for part in given]
    for between, texts in (("", read), ("\n", lines)):
        value = [text for text in texts if isinstance(text, str) and text]
        if len(value) > 1 and between.join(value) in masked_texts:
            return True
    return False


def unread_texts(original: chat_pb2.Original, also: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """The texts in fields of the original body that the gateway does not read, each with its field's place. Definitions
    of `tools` and `system` messages are the application's own texts, and left out unless `also` names them. So are
    fields that only the provider can decipher."""
    own = [pattern for name, pattern in _OF_APPLICATION.items() if name not in also]
    for place, given in original.untranslated.items():
        if not (any(pattern.match(place) for pattern in own) or _SEALED.search(place)):
            for text in texts_of(json.loads(given)):
                yield place, text


def is_of_conversation(place: str) -> bool:
    """Whether a field belongs to the conversation, which is the gateway's once a policy has changed it."""
    return _OF_CONVERSATION.match(place) is not None


def texts_of(given: Any) -> Iterator[str]:
    """All texts in a value of JSON."""
    return (each for each in values_of(given) if isinstance(each, str))


def with_masks(given: Any, masked_texts: Mapping[str, str]) -> Any:
    """The value with masked texts."""
    if isinstance(given, str):
        return masked_texts.get(given, given)
    if isinstance(given, dict):
        return {name: with_masks(each, masked_texts) for name, each in given.items()}
    return [with_masks(each, masked_texts) for each in given] if isinstance(given, list) else given


def _without(body: dict[str, Any], replaced: Collection[str]) -> dict[str, Any]:
    kept = {name: given for name, given in body.items() if name not in replaced}
    for name, _, field in (place.partition(".") for place in replaced):
        if field and isinstance(given := kept.get(name), dict):
            kept[name] = {each: value for each, value in given.items() if each != field}
            if not kept[name]:
                del kept[name]
    return kept
