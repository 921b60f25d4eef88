"""The options of an HTTP request: a request to the gateway, and the form of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.fields import GUARD_ACTIONS, GUARDED, VERIFIERS, holder, set_cache, word_values
from hedgerow.request_options.table import options_on
from services.gateway.admission.question import TIERS, unknown
from services.gateway.http.fields import Fields
from services.runtime.errors import InvalidInput
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER
from services.runtime.rpc.boundary import TRACE_ID_HEADER
from services.runtime.strict_json import compact

_PREFIX, _BODY = "x-hedgerow-", "hedgerow"
_OPTIONS = {option.name: option for option in options_on(Surface.HTTP)}
_BY_HEADER = {option.header: option for option in _OPTIONS.values()}
_HEADERS = frozenset({*_BY_HEADER, TENANT_HEADER, EXPIRES_HEADER, TRACE_ID_HEADER})
_WORDS: Mapping[str, Mapping[str, Any]] = {
    option.name: word_values(option, option.http_words or option.words)
    for option in _OPTIONS.values()
    if option.kind in (Kind.WORD, Kind.WORDS)
}
_MOST_ATTEMPTS, _ATTEMPT_DIGITS = 1_000, 18  # Python turns no more than 4,300 digits into a number
_MESH_TOOL = ("name", "source", "arguments", "offered")
_GUARD_EXAMPLE = "personal=mask,secrets=refuse"
TRUNCATIONS = _WORDS["truncation"]
# Checked here: a request for an answer in one piece does not carry them, so the gateway would not check them.
_CHECKED_HERE = ("hit_chars_per_s", "silence_ms")
_NAMES = ("safety_identifier", "user")  # OpenAI's; Anthropic's is `metadata.user_id`


@dataclass(slots=True)
class RequestOptions:
    """A request, and the form of its answer. `model`: the name that the caller gave. `usage`: whether a stream ends
    with its token usage."""

    request: pb.GenerateRequest
    model: str = "auto"
    stream: bool = False
    usage: bool = False
    choices: int = 1  # answers that the request asks for
    echo: Mapping[str, Any] = field(default_factory=dict)  # fields of the request that the answer repeats
    stored: Mapping[str, Any] = field(default_factory=dict)  # fields of the answer where the gateway may store it
    at_once: bool = False  # with a cascade: send the fast model's text before it has passed the check
    findings: bool = False  # report citations and late results in the stream, as they come
    silence_ms: int | None = None  # the longest silence after the first text; 0: no limit, None: the gateway's


def take_model(order: RequestOptions, body: Fields, known: Collection[str]) -> None:
    """The model by its name, or the tier that a name stands for. Raises `ModelUnknown`."""
    order.model = name = body.needed("model")
    if name in known:
        order.request.model = name
    elif name in TIERS:
        order.request.tier = TIERS[name]
    else:
        raise unknown(name, known)


def take_options(order: RequestOptions, headers: Mapping[str, str], body: Fields) -> None:
    """Hedgerow's own options: of the body's `hedgerow`, and of headers, which are stronger."""
    order.request.end_user.extend(end_user(body))
    if extension := body.object(_BODY):
        for name in extension:
            if name not in _OPTIONS:
                raise InvalidInput(extension.at(name), f"one of {', '.join(sorted(_OPTIONS))}", "an unknown option")
        _take(order, extension)
    for name in headers:
        if name.startswith(_PREFIX) and name not in _HEADERS:
            raise InvalidInput(name, f"one of {', '.join(sorted(_BY_HEADER))}", "an unknown header")
    given = {option.name: _parsed(option, value) for name, option in _BY_HEADER.items() if (value := headers.get(name))}
    if given:
        _take(order, _Headers(given))
    order.request.idempotency_key = headers.get("idempotency-key", "")
    if (attempt := headers.get("x-stainless-retry-count", "")).isdecimal():
        order.request.attempt = min(int(attempt[:_ATTEMPT_DIGITS]), _MOST_ATTEMPTS)


def settle_replacing(order: RequestOptions, *, checks: bool) -> None:
    """Whether the answer's text may be replaced. In a stream of these dialects no text can be, so such an option is
    refused by name; an answer in one piece shows no replacement. `checks`: whether the gateway validates the output
    without being asked."""
    request = order.request
    if order.at_once and not request.HasField("cascade"):
        raise InvalidInput(f"{_BODY}.cascade_at_once", "with a cascade", "none")
    for name, wanted in (("repair", request.repair), ("cascade_at_once", order.at_once)):
        if order.stream and wanted:
            raise InvalidInput(f"{_BODY}.{name}", "none together with stream, whose text cannot be replaced", "true")
    if checks and not (order.stream or request.HasField("repair")):
        request.repair = True


def settle_pace(order: RequestOptions) -> None:
    """A hit comes at a pace in a stream alone: an answer in one piece comes at once."""
    if not order.stream:
        order.request.cache.hit_chars_per_s = 0


def _take(order: RequestOptions, given: Fields) -> None:
    """The options of the body's object, or of the headers."""
    for name, read in _READERS.items():
        if (value := read(given, name)) is not None:
            _put(order, given, _OPTIONS[name], value)
    for take in _OWN.values():
        take(order, given)


def _read_word(given: Fields, name: str) -> Any:
    return given.one_of(name, _WORDS[name])


def _read_words(given: Fields, name: str) -> list[Any] | None:
    known, words = _WORDS[name], given.texts(name)
    for word in words:
        if word not in known:
            raise InvalidInput(given.at(name), f"some of {', '.join(known)}", word)
    return [known[word] for word in words] if name in given else None


def _read_texts(given: Fields, name: str) -> list[str] | None:
    """A single text by HTTP; an empty one means none."""
    return [text] if (text := given.text(name)) else None


def _put(order: RequestOptions, given: Fields, option: RequestOption, value: Any) -> None:
    if option.name in _CHECKED_HERE and not option.admits(value):
        raise given.wrong(option.name, option.limit)
    if not option.place:
        setattr(order, option.name, value)
        return
    message, name = holder(order.request, option)
    if isinstance(value, list):
        getattr(message, name)[:] = value
    else:
        setattr(message, name, value)


def _take_cache(order: RequestOptions, given: Fields) -> None:
    if (word := given.one_of("cache", _WORDS["cache"])) is not None:
        set_cache(order.request.cache, word)


def _take_cascade(order: RequestOptions, given: Fields) -> None:
    """Names of checks with commas between them; `default` for those of the gateway."""
    names, cascade = given.text("cascade"), order.request.cascade
    if names is None:
        return
    cascade.SetInParent()
    del cascade.verifiers[:]
    for name in names.split(",") if names != "default" else ():
        if name.strip() not in VERIFIERS:
            raise given.wrong("cascade", f"default, or some of {', '.join(VERIFIERS)}")
        cascade.verifiers.append(VERIFIERS[name.strip()])


def _take_at_once(order: RequestOptions, given: Fields) -> None:
    """Read the option, which is no part of the request to the gateway."""
    if (at_once := given.flag("cascade_at_once")) is not None:
        order.at_once = at_once


def _take_mesh_tools(order: RequestOptions, given: Fields) -> None:
    """Names, or objects with a name or a source, arguments and whether it is offered."""
    tools = order.request.mesh_tools
    if "mesh_tools" in given:
        del tools[:]
    for index, each in enumerate(given.array("mesh_tools")):
        where = f"{given.at('mesh_tools')}[{index}]"
        if isinstance(each, str):
            tools.add(name=each)
        elif isinstance(each, dict):
            _take_mesh_tool(tools.add(), Fields(each, where))
        else:
            raise InvalidInput(where, "a name or an object", "neither")


def _take_mesh_tool(asked: pb.MeshTool, given: Fields) -> None:
    for key in given:
        if key not in _MESH_TOOL:
            raise InvalidInput(given.at(key), f"one of {', '.join(_MESH_TOOL)}", "an unknown name")
    name, source = given.text("name"), given.text("source")
    if name and source:
        raise given.wrong("source", "none together with a name")
    if name:
        asked.name = name
    if source:
        asked.source = source
    asked.offered = given.flag("offered") or False
    if (arguments := given.object("arguments")) is not None:
        asked.arguments = json.dumps({key: arguments.raw(key) for key in arguments})


def _take_guard(order: RequestOptions, given: Fields) -> None:
    """Things and the action for each, `personal=mask`, with commas between."""
    if (guard := given.text("guard")) is None:
        return
    for each in guard.split(","):
        name, _, action = each.strip().partition("=")
        if name not in GUARDED or action not in GUARD_ACTIONS:
            limit = f"{' or '.join(GUARD_ACTIONS)} for some of {', '.join(GUARDED)}: {_GUARD_EXAMPLE}"
            raise given.wrong("guard", limit)
        setattr(order.request.guard, name, GUARD_ACTIONS[action])


# Options that are not one value in one field.
_OWN: Mapping[str, Callable[[RequestOptions, Fields], None]] = {
    "cache": _take_cache,
    "cascade": _take_cascade,
    "cascade_at_once": _take_at_once,
    "guard": _take_guard,
    "mesh_tools": _take_mesh_tools,
}
_READ: Mapping[Kind, Callable[[Fields, str], Any]] = {
    Kind.WHOLE: Fields.whole,
    Kind.NUMBER: Fields.number,
    Kind.FLAG: Fields.flag,
    Kind.TEXT: Fields.text,
    Kind.TEXTS: _read_texts,
    Kind.WORD: _read_word,
    Kind.WORDS: _read_words,
}
_READERS = {name: _READ[option.kind] for name, option in _OPTIONS.items() if name not in _OWN}


class _Headers(Fields):
    """Options that came as headers, under their names."""

    def at(self, name: str) -> str:
        return _OPTIONS[name].header


def _parsed(option: RequestOption, value: str) -> str | float | bool | list[str]:
    """A header's text as JSON would have it."""
    if option.kind is Kind.WORDS or option.name == "mesh_tools":
        return [each.strip() for each in value.split(",")]
    if option.kind is Kind.FLAG:
        return {"true": True, "false": False}.get(value, value)
    if option.kind not in (Kind.WHOLE, Kind.NUMBER):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def end_user(body: Fields) -> list[str]:
    """Each name that a body has for its end user, once: two requests are of one end user where all are the same. A
    provider gets the fields as they are."""
    return list(dict.fromkeys(filter(None, map(_text, _given(body)))))


def _given(body: Fields) -> Iterator[Any]:
    yield from map(body.seen, _NAMES)
    metadata = body.seen("metadata")
    yield metadata.get("user_id") if isinstance(metadata, dict) else None


def _text(given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    return compact(given).decode()
