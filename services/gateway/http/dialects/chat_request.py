"""Reading what OpenAI's chat completions ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.messages import NO_TEXT
from services.gateway.http.dialects.parts import put_content, settle_blank
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_model, take_options
from services.runtime import strict_json
from services.runtime.errors import InvalidInput
from services.runtime.limits import LONG_MESSAGES, STOPS, TOOL_CALLS, TOOLS
from services.runtime.strict_json import compact

ROLES = {
    "system": chat_pb2.ROLE_SYSTEM,
    "developer": chat_pb2.ROLE_SYSTEM,
    "user": chat_pb2.ROLE_USER,
    "assistant": chat_pb2.ROLE_ASSISTANT,
    "tool": chat_pb2.ROLE_TOOL,
}
MODES = {"none": chat_pb2.TOOL_MODE_NONE, "auto": chat_pb2.TOOL_MODE_AUTO, "required": chat_pb2.TOOL_MODE_REQUIRED}
_ASKING = (chat_pb2.ROLE_USER, chat_pb2.ROLE_TOOL)  # roles of a conversation's last message
_STRUCTURED = ("json", "json_object", "regex", "choice", "grammar")
_REFUSED = ("functions", "function_call")
_MOST_CHOICES = 128  # as OpenAI has it
_TOKEN_DIGITS = 10  # Python turns no more than 4,300 into a number


def read_chat(
    body: Fields, headers: Mapping[str, str], known: Collection[str], most_messages: int = LONG_MESSAGES
) -> RequestOptions:
    """The order of a chat completion. Raises `InvalidInput` and `ModelUnknown`."""
    order = RequestOptions(pb.GenerateRequest())
    take_model(order, body, known)
    body.refuse(*_REFUSED)
    take_choices(order, body)
    _leave_more_than_text(order, body)
    take_stream(order, body)
    request = order.request
    _take_messages(request, body.objects("messages", most_messages))
    take_sampling(request, body)
    _take_logprobs(request, body)
    take_tools(request, body)
    take_form(request, body, body.object("response_format"))
    take_options(order, headers, body)
    return order


def take_choices(order: RequestOptions, body: Fields) -> None:
    """How many answers there are to be."""
    if (count := body.whole("n")) is not None:
        if not 1 <= count <= _MOST_CHOICES:
            raise InvalidInput("n", f"1 to {_MOST_CHOICES}", count)
        order.choices = count


def _leave_more_than_text(order: RequestOptions, body: Fields) -> None:
    """A provider of the same API reads several answers and more than text as they are written."""
    if order.choices > 1:
        body.leave("n")
    if any(each != "text" for each in body.texts("modalities")):
        body.leave("modalities")


def take_stream(order: RequestOptions, body: Fields) -> None:
    order.stream = bool(body.flag("stream"))
    if options := body.object("stream_options"):
        order.usage = bool(options.flag("include_usage"))
    if usage := body.object("usage"):  # of OpenRouter's clients
        order.usage |= bool(usage.flag("include"))


def take_sampling(request: pb.GenerateRequest, body: Fields) -> None:
    """How tokens are drawn; the gateway checks ranges."""
    sampling = request.sampling
    if (temperature := body.number("temperature")) is not None:
        sampling.temperature = temperature
    if (top_p := body.number("top_p")) is not None:
        sampling.top_p = top_p
    for name in ("max_completion_tokens", "max_tokens"):
        if (most := body.whole(name)) is not None:
            sampling.max_tokens = most
            break
    if "stop" in body:
        sampling.stop.extend(body.texts("stop", STOPS))
    if (seed := body.long("seed")) is not None:
        sampling.seed = seed
    if penalty := body.number("frequency_penalty"):  # 0 is none, which models of every API take
        sampling.frequency_penalty = penalty
    if penalty := body.number("presence_penalty"):
        sampling.presence_penalty = penalty
    if bias := body.object("logit_bias"):
        _take_bias(sampling, bias)
    _take_vllm_sampling(sampling, body)


def _take_vllm_sampling(sampling: chat_pb2.Sampling, body: Fields) -> None:
    """Fields that vLLM's servers take beyond OpenAI's API, by the same names.

    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#extra-parameters_1
    """
    if (top_k := body.whole("top_k")) is not None:
        sampling.top_k = top_k
    if (min_p := body.number("min_p")) is not None:
        sampling.min_p = min_p
    if (penalty := body.number("repetition_penalty")) is not None:
        sampling.repetition_penalty = penalty
    if (least := body.whole("min_tokens")) is not None:
        sampling.min_tokens = least
    if ignored := body.flag("ignore_eos"):
        sampling.ignore_eos = ignored
    sampling.stop_token_ids.extend(body.wholes("stop_token_ids"))


def _take_bias(sampling: chat_pb2.Sampling, bias: Fields) -> None:
    for token in bias:
        if not (token.isdecimal() and len(token) <= _TOKEN_DIGITS and int(token) < 2**31):
            raise InvalidInput(bias.at(token[:16]), "a token's number", token)
        sampling.logit_bias.add(token=int(token), bias=bias.number(token) or 0.0)


def _take_logprobs(request: pb.GenerateRequest, body: Fields) -> None:
    wanted, top = body.flag("logprobs"), body.whole("top_logprobs")
    if wanted:
        request.sampling.top_logprobs = top or 0
    elif top:
        raise InvalidInput("top_logprobs", "only with logprobs true", top)


def take_tools(request: pb.GenerateRequest, body: Fields) -> None:
    """Tools, which of them, and whether several at once."""
    for given in body.objects("tools"):
        if given.needed("type") == "function":
            put_tool(request, _function(given), "parameters")
        else:
            given.leave()
    _take_choice_of_tools(request, body)
    leave_choice_of_left(request, body)
    if (parallel := body.flag("parallel_tool_calls")) is not None:
        request.parallel_tool_calls = parallel


def _take_choice_of_tools(request: pb.GenerateRequest, body: Fields) -> None:
    if isinstance(body.raw("tool_choice"), str):
        request.tool_choice.mode = body.one_of("tool_choice", MODES) or chat_pb2.TOOL_MODE_AUTO
    elif choice := body.object("tool_choice"):
        if choice.needed("type") == "function":
            request.tool_choice.name = _function(choice).needed("name")
        else:
            body.leave("tool_choice")


def leave_choice_of_left(request: pb.GenerateRequest, body: Fields) -> None:
    """A choice that only tools which were left can follow is the provider's to read, too."""
    if len(request.tools) == len(body.array("tools")):
        return
    named = request.tool_choice.WhichOneof("choice") == "name"
    required = request.tool_choice.mode == chat_pb2.TOOL_MODE_REQUIRED
    if (named and all(tool.name != request.tool_choice.name for tool in request.tools)) or (
        required and not request.tools
    ):
        request.ClearField("tool_choice")
        body.leave("tool_choice")


def put_tool(request: pb.GenerateRequest, given: Fields, schema: str) -> None:
    """A tool more; `schema` is the field that has its arguments'."""
    if len(request.tools) >= TOOLS:
        raise InvalidInput("tools", f"at most {TOOLS}", "more")
    tool = request.tools.add()
    tool.name, tool.description = given.needed("name"), given.text("description") or ""
    tool.strict = bool(given.flag("strict"))
    parameters = given.raw(schema)
    if parameters is not None and not isinstance(parameters, dict):
        raise given.wrong(schema, "an object")
    if parameters:
        tool.parameters = compact(parameters).decode()


def _function(given: Fields) -> Fields:
    if given.needed("type") != "function":
        raise given.wrong("type", "function")
    function = given.object("function")
    if function is None:
        raise given.wrong("function", "an object")
    return function


def take_form(request: pb.GenerateRequest, body: Fields, given: Fields | None) -> None:
    """What the answer must match: `given`, where the API has a format, or `structured_outputs` as vLLM's servers do."""
    if given:
        _take_format(request, given)
    if outputs := body.object("structured_outputs"):
        _take_structured_outputs(request, outputs)


def _take_format(request: pb.GenerateRequest, given: Fields) -> None:
    match given.needed("type"):
        case "text":
            pass
        case "json_object":
            request.response_format.json_object = True
        case "json_schema":
            # Responses has the schema beside the type, chat completions one object further in.
            inner = given if "schema" in given else given.object("json_schema")
            if inner is None or not isinstance(inner.raw("schema"), dict | bool):
                raise (inner or given).wrong("schema" if inner else "json_schema", "an object")
            request.response_format.json_schema = compact(inner.raw("schema")).decode()
        case "regex":
            request.response_format.regex = given.needed("regex")
        case "choice":
            _take_choice(request, given)
        case "grammar":
            request.response_format.grammar = given.needed("grammar")
        case _:
            raise given.wrong("type", "one of text, json_object, json_schema, regex, choice, grammar")


def _take_structured_outputs(request: pb.GenerateRequest, given: Fields) -> None:
    named = [name for name in _STRUCTURED if name in given]
    twice = request.HasField("response_format")
    if len(named) != 1 or twice:
        at = given.at(named[0]) if named else given.at("")[:-1]
        beside = " beside another format" if twice else ""
        raise InvalidInput(at, f"one of {', '.join(_STRUCTURED)}, alone", (" and ".join(named) or "none") + beside)
    match named[0]:
        case "json":
            schema = given.raw("json")
            if isinstance(schema, str) and not _is_json(schema):
                raise given.wrong("json", "a JSON Schema, also as text")
            request.response_format.json_schema = schema if isinstance(schema, str) else compact(schema).decode()
        case "json_object":
            request.response_format.json_object = bool(given.flag("json_object"))
        case "choice":
            _take_choice(request, given)
        case name:
            setattr(request.response_format, name, given.needed(name))


def _is_json(text: str) -> bool:
    try:
        strict_json.loads(text)
    except ValueError:
        return False
    return True


def _take_choice(request: pb.GenerateRequest, given: Fields) -> None:
    request.response_format.choice.values.extend(given.texts("choice"))
    request.response_format.choice.SetInParent()


def _take_messages(request: pb.GenerateRequest, given: list[Fields]) -> None:
    """The conversation. Where it ends with another message than a user's or a tool's result, that one is left for a
    provider, because no other API goes on from there."""
    for each in given:
        _put_message(request.messages.add(), each)
        settle_blank(request, each)
    if request.messages and request.messages[-1].role not in _ASKING:
        request.messages.add(role=chat_pb2.ROLE_USER, content=NO_TEXT)
        given[-1].leave()


def _put_message(message: chat_pb2.Message, given: Fields) -> None:
    message.role = given.one_of("role", ROLES) or chat_pb2.ROLE_UNSPECIFIED
    if not message.role:
        raise given.wrong("role", f"one of {', '.join(ROLES)}")
    given.refuse("function_call")
    put_content(message, given)
    if message.role == chat_pb2.ROLE_ASSISTANT and not (message.content or message.parts):
        message.content = given.text("refusal") or ""
    for call in given.objects("tool_calls", TOOL_CALLS):
        if call.needed("type") == "custom":
            _put_custom_call(message, call)
            continue
        function = _function(call)
        message.tool_calls.add(
            id=call.needed("id"), name=function.needed("name"), arguments=function.text("arguments") or ""
        )
    message.tool_call_id = given.text("tool_call_id") or ""
    if message.role == chat_pb2.ROLE_TOOL:
        given.raw("name")  # the call says it, too: models of other APIs do without


def _put_custom_call(message: chat_pb2.Message, call: Fields) -> None:
    """A call whose argument is a text. It is kept because results refer to it; only a provider interprets it."""
    custom = call.object("custom")
    if custom is None:
        raise call.wrong("custom", "an object")
    message.tool_calls.add(id=call.needed("id"), name=custom.needed("name"), arguments=custom.text("input") or "")
    call.leave()
