"""What a request by HTTP orders: a question to the gateway, and the form in which the answer is wanted."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.model import TIERS, unknown
from services.gateway.http.end_user import end_user
from services.gateway.http.fields import Fields
from services.runtime.errors import InvalidInput
from services.runtime.rpc.authorization import EXPIRES_HEADER, TENANT_HEADER
from services.runtime.rpc.boundary import TRACE_ID_HEADER

_PREFIX, _BODY = "x-hedgerow-", "hedgerow"
_OPTIONS = frozenset(
    {
        "budget_ms",
        "first_token_ms",
        "silence_ms",
        "priority",
        "cache",
        "min_similarity",
        "cache_allow",
        "cache_category",
        "cache_scope",
        "end_user",
        "hit_chars_per_s",
        "tier",
        "max_cost_usd",
        "single_attempt",
        "diet",
        "whole",
        "truncation",
        "system_prompt",
        "cascade",
        "cascade_at_once",
        "repair",
        "mesh_tools",
        "tool_steps",
        "tool_calls",
        "guard",
        "findings",
        "untranslated",
    }
)
_OPTION_HEADERS = {name: f"{_PREFIX}{name.replace('_', '-')}" for name in _OPTIONS}
_HEADERS = frozenset({*_OPTION_HEADERS.values(), TENANT_HEADER, EXPIRES_HEADER, TRACE_ID_HEADER})
_NUMBERS = ("_ms", "_usd", "_per_s", "_similarity", "tool_steps", "tool_calls")
_LISTS = ("mesh_tools", "cache_allow")
_MOST_CHARS_PER_S = 1_000_000
_MOST_ATTEMPTS, _ATTEMPT_DIGITS = 1_000, 18  # Python turns no more than 4,300 digits into a number
_MESH_TOOL = ("name", "source", "arguments", "offered")
_FLAGS = ("single_attempt", "whole", "cascade_at_once", "repair", "findings")
_VERIFIERS = {
    "rules": pb.VERIFIER_RULES,
    "form": pb.VERIFIER_FORM,
    "logprobs": pb.VERIFIER_LOGPROBS,
    "judge": pb.VERIFIER_JUDGE,
}
_GUARD_ACTIONS = {"mask": pb.GUARD_ACTION_MASK, "refuse": pb.GUARD_ACTION_REFUSE}
_EXAMPLE = "personal=mask,secrets=refuse"
_GUARDED = tuple(field.name for field in pb.GuardPolicy.DESCRIPTOR.fields)
_QUESTION_KINDS = {
    "sampled": pb.QUESTION_KIND_SAMPLED,
    "time_bound": pb.QUESTION_KIND_TIME_BOUND,
    "personal": pb.QUESTION_KIND_PERSONAL,
}
_CACHE_USES = {
    "bypass": pb.CACHE_USE_UNSPECIFIED,
    "exact": pb.CACHE_USE_EXACT,
    "use": pb.CACHE_USE_ANY,
}
_CACHE_SCOPES = {"tenant": pb.CACHE_SCOPE_TENANT, "user": pb.CACHE_SCOPE_USER}
_UNTRANSLATED = {"refuse": pb.UNTRANSLATED_REFUSE, "omit": pb.UNTRANSLATED_OMIT}
TRUNCATIONS = {"auto": pb.TRUNCATION_AUTO, "disabled": pb.TRUNCATION_DISABLED}
_DIETS = {"off": pb.DIET_OFF, "system": pb.DIET_SYSTEM, "all": pb.DIET_ALL}


@dataclass(slots=True)
class RequestOptions:
    """`model` is the name as it was asked for; `usage`: whether a stream ends with the tokens it took."""

    request: pb.GenerateRequest
    model: str = "auto"
    stream: bool = False
    usage: bool = False
    echo: Mapping[str, Any] = field(default_factory=dict)  # what the answer repeats of the request
    at_once: bool = False  # of a cascade: the fast model's text goes out before it has passed
    findings: bool = False  # a stream tells of citations and late results as they come
    silence_ms: int | None = None  # the longest after the first text; 0: none, None: the gateway's own


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
                raise InvalidInput(extension.at(name), f"one of {', '.join(sorted(_OPTIONS))}", "another name")
        _take(order, extension)
    for name in headers:
        if name.startswith(_PREFIX) and name not in _HEADERS:
            raise InvalidInput(name, f"one of {', '.join(sorted(_OPTION_HEADERS.values()))}", "another header")
    told = {name: value for name, header in _OPTION_HEADERS.items() if (value := headers.get(header))}
    if told:
        _take(order, _Headers({name: _parsed(name, value) for name, value in told.items()}))
    order.request.idempotency_key = headers.get("idempotency-key", "")
    if (attempt := headers.get("x-stainless-retry-count", "")).isdecimal():
        order.request.attempt = min(int(attempt[:_ATTEMPT_DIGITS]), _MOST_ATTEMPTS)


def settle_replacing(order: RequestOptions, *, checks: bool) -> None:
    """Whether the answer's text may be replaced: of a stream of these dialects nothing can be, so that is refused by
    name; of an answer in one piece nobody sees it. `checks`: whether the gateway looks at forms by itself."""
    request = order.request
    if order.at_once and not request.HasField("cascade"):
        raise InvalidInput(f"{_BODY}.cascade_at_once", "with a cascade", "none")
    for name, wanted in (("repair", request.repair), ("cascade_at_once", order.at_once)):
        if order.stream and wanted:
            raise InvalidInput(f"{_BODY}.{name}", "none beside stream, whose text cannot be replaced", "true")
    if checks and not (order.stream or request.HasField("repair")):
        request.repair = True


def settle_pace(order: RequestOptions) -> None:
    """A hit comes at a pace to who reads along: an answer in one piece comes at once."""
    if not order.stream:
        order.request.cache.hit_chars_per_s = 0


def _take(order: RequestOptions, options: Fields) -> None:
    _take_times(order, options)
    request = order.request
    if (realtime := options.one_of("priority", {"realtime": True, "normal": False})) is not None:
        request.realtime = realtime
    if user := options.text("end_user"):
        request.end_user[:] = [user]
    _take_cache(request.cache, options)
    if (tier := options.one_of("tier", TIERS)) is not None:
        request.tier = tier
    if (cost := options.number("max_cost_usd")) is not None:
        request.max_cost_usd = cost
    if (single := options.flag("single_attempt")) is not None:
        request.single_attempt = single
    _take_prompt(request.prompt, options)
    _take_cascade(order, options)
    if (repair := options.flag("repair")) is not None:
        request.repair = repair
    _take_mesh_tools(request, options)
    if (untranslated := options.one_of("untranslated", _UNTRANSLATED)) is not None:
        request.untranslated = untranslated
    if (findings := options.flag("findings")) is not None:
        order.findings = findings
    if (guard := options.text("guard")) is not None:
        _take_guard(request.guard, options, guard)


def _take_cache(policy: pb.CachePolicy, options: Fields) -> None:
    if (use := options.one_of("cache", _CACHE_USES)) is not None:
        policy.bypass = use == pb.CACHE_USE_UNSPECIFIED
        policy.use = use
    if (similarity := options.number("min_similarity")) is not None:
        policy.min_similarity = similarity
    if "cache_allow" in options:
        del policy.allow[:]
    for name in options.texts("cache_allow"):
        if name not in _QUESTION_KINDS:
            raise InvalidInput(options.at("cache_allow"), f"some of {', '.join(_QUESTION_KINDS)}", name)
        policy.allow.append(_QUESTION_KINDS[name])
    if (category := options.text("cache_category")) is not None:
        policy.category = category
    if (scope := options.one_of("cache_scope", _CACHE_SCOPES)) is not None:
        policy.scope = scope
    if (pace := options.number("hit_chars_per_s")) is not None:
        if not 0 <= pace <= _MOST_CHARS_PER_S:  # here, because an answer in one piece has none in its request
            raise InvalidInput(f"{_BODY}.hit_chars_per_s", f"0 to {_MOST_CHARS_PER_S}", pace)
        policy.hit_chars_per_s = pace


def _take_cascade(order: RequestOptions, options: Fields) -> None:
    """Names of checks with commas between them; `default` for those of the gateway."""
    if (at_once := options.flag("cascade_at_once")) is not None:
        order.at_once = at_once
    names, cascade = options.text("cascade"), order.request.cascade
    if names is None:
        return
    cascade.SetInParent()
    for name in names.split(",") if names != "default" else ():
        if name.strip() not in _VERIFIERS:
            raise options.wrong("cascade", f"default, or some of {', '.join(_VERIFIERS)}")
        cascade.verifiers.append(_VERIFIERS[name.strip()])


def _take_mesh_tools(request: pb.GenerateRequest, options: Fields) -> None:
    """Names, or objects with a name or a source, arguments and whether it is offered."""
    if "mesh_tools" in options:
        del request.mesh_tools[:]
    for index, given in enumerate(options.array("mesh_tools")):
        where = f"{options.at('mesh_tools')}[{index}]"
        if isinstance(given, str):
            request.mesh_tools.add(name=given)
        elif isinstance(given, dict):
            _take_mesh_tool(request.mesh_tools.add(), Fields(given, where))
        else:
            raise InvalidInput(where, "a name or an object", "neither")
    if (steps := options.whole("tool_steps")) is not None:
        request.tool_limits.steps = steps
    if (calls := options.whole("tool_calls")) is not None:
        request.tool_limits.calls = calls


def _take_mesh_tool(asked: pb.MeshTool, told: Fields) -> None:
    for key in told:
        if key not in _MESH_TOOL:
            raise InvalidInput(told.at(key), f"one of {', '.join(_MESH_TOOL)}", "another name")
    name, source = told.text("name"), told.text("source")
    if name and source:
        raise told.wrong("source", "none beside a name")
    if name:
        asked.name = name
    if source:
        asked.source = source
    asked.offered = told.flag("offered") or False
    if (arguments := told.object("arguments")) is not None:
        asked.arguments = json.dumps({key: arguments.raw(key) for key in arguments})


def _take_guard(policy: pb.GuardPolicy, options: Fields, told: str) -> None:
    """What is looked for and what becomes of it, `personal=mask`, with commas between."""
    for each in told.split(","):
        name, _, action = each.strip().partition("=")
        if name not in _GUARDED or action not in _GUARD_ACTIONS:
            raise options.wrong("guard", f"{' or '.join(_GUARD_ACTIONS)} for some of {', '.join(_GUARDED)}: {_EXAMPLE}")
        setattr(policy, name, _GUARD_ACTIONS[action])


def _take_prompt(policy: pb.PromptPolicy, options: Fields) -> None:
    if (diet := options.one_of("diet", _DIETS)) is not None:
        policy.diet = diet
    if (whole := options.flag("whole")) is not None:
        policy.whole = whole
    if (truncation := options.one_of("truncation", TRUNCATIONS)) is not None:
        policy.truncation = truncation
    if (system := options.text("system_prompt")) is not None:
        policy.system = system


def _take_times(order: RequestOptions, options: Fields) -> None:
    if (budget := options.whole("budget_ms")) is not None:
        order.request.budget_ms = budget
    if (first := options.whole("first_token_ms")) is not None:
        order.request.first_token_budget_ms = first
    if (silence := options.whole("silence_ms")) is not None:
        if silence < 0:
            raise options.wrong("silence_ms", "at least 0")
        order.silence_ms = silence


class _Headers(Fields):
    """Options that came as headers, under their names."""

    def at(self, name: str) -> str:
        return _OPTION_HEADERS[name]


def _parsed(name: str, value: str) -> str | float | bool | list[str]:
    """A header's text as JSON would have it."""
    if name in _LISTS:
        return [each.strip() for each in value.split(",")]
    if name in _FLAGS:
        return {"true": True, "false": False}.get(value, value)
    if not name.endswith(_NUMBERS):
        return value
    try:
        return float(value)
    except ValueError:
        return value
