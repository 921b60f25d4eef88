"""Each option of a request, by the table of options: every surface passes it on, its limits hold, and the files written
from the table are up to date. The effect of an option is tested where the gateway decides it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml
from jsonschema import Draft202012Validator
from openai import OpenAI
from typer.testing import CliRunner

import hedgerow
from hedgerow import Request
from hedgerow._outgoing import Caller
from hedgerow._peer import Peer
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.fields import field_of, holder, numbers
from hedgerow.request_options.table import OPTIONS, options_on
from hedgerow_cli.app import app
from hedgerow_cli.ask import ask
from scripts.request_options import WRITTEN
from services.gateway.admission.options import check_options
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.completions import read_completion
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions
from services.runtime.errors import InvalidInput
from tests.conftest import REPOSITORY
from tests.contract.option_cases import OWN, case_of, set_field

# On the command line alone: how the answer is shown, which gateway is asked, and what makes up one option of the SDK.
SHOWN = {"stream", "pause_ms", "as_json", "waterfall"}
REACHED = {"gateway", "api_key", "tls", "ca_file", "tls_dir", "plaintext_key"}
PARTS = {"question", "image", "tool", "mcp", "collection", "agent"}
ASKED = [{"role": "user", "content": "?"}]
QUESTIONS: Mapping[Callable[..., RequestOptions], Mapping[str, Any]] = {  # of each dialect by HTTP
    read_chat: {"messages": ASKED},
    read_completion: {"prompt": "?"},
    read_messages: {"messages": ASKED, "max_tokens": 5},
    read_response: {"input": "?"},
}


def each_on(*surfaces: Surface) -> pytest.MarkDecorator:
    options = [option for option in OPTIONS if option.on.issuperset(surfaces)]
    return pytest.mark.parametrize("option", options, ids=[option.name for option in options])


def by_sdk(**options: Any) -> pb.GenerateRequest:
    asked: Any = {"messages": "?", **options}
    return Caller(Peer("localhost:1"), None).generate(asked).request


def by_http(read: Callable[..., RequestOptions], headers: Mapping[str, str], **own: Any) -> RequestOptions:
    body = {"model": "m", **QUESTIONS[read], "hedgerow": own}
    return read(parse(json.dumps(body).encode()), headers, ["m"])


def beside(plain: pb.GenerateRequest, option: pb.GenerateRequest) -> pb.GenerateRequest:
    """A request that says nothing but its question, with an option."""
    request = pb.GenerateRequest()
    request.CopyFrom(plain)
    request.MergeFrom(option)
    return request


@each_on(Surface.SDK)
def test_the_sdk_passes_an_option_on(option: RequestOption) -> None:
    case = case_of(option)
    assert by_sdk(**case.sdk) == beside(by_sdk(), case.request)
    assert by_sdk(**{option.name: None}) == by_sdk()


@pytest.mark.parametrize("read", QUESTIONS)
@each_on(Surface.HTTP)
def test_the_http_api_passes_an_option_on_from_the_body_and_from_a_header(
    option: RequestOption, read: Callable[..., RequestOptions]
) -> None:
    case = case_of(option)
    header = ",".join(case.http) if isinstance(case.http, list) else str(case.http).replace("True", "true")
    plain = by_http(read, {})
    for order in (by_http(read, {}, **{option.name: case.http}), by_http(read, {option.header: header})):
        asked = case.request if case.http_request is None else case.http_request
        assert order.request == beside(plain.request, asked)
        assert {name: getattr(order, name) for name in case.order} == case.order
    assert by_http(read, {}, **{option.name: None}) == plain


@each_on(Surface.CLI)
def test_the_command_line_passes_an_option_on(option: RequestOption, monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(option)
    assert by_cli(monkeypatch, *case.flags) == beside(by_cli(monkeypatch), case.request)


def test_the_command_line_has_its_own_flags_for_tools_of_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    case = OWN["mesh_tools"]
    assert by_cli(monkeypatch, *case.flags).mesh_tools == case.request.mesh_tools


def by_cli(monkeypatch: pytest.MonkeyPatch, *flags: str) -> pb.GenerateRequest:
    """The request that `hedgerow ask` gives to its client."""
    asked: list[pb.GenerateRequest] = []

    class Client:
        def __init__(self, **_: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def ask(self, question: str, *, images: Any, audio: Any, **options: Any) -> Any:
            asked.append(by_sdk(**options))
            raise hedgerow.Unavailable("no gateway is asked")

    monkeypatch.setattr(hedgerow, "Client", Client, raising=False)
    result = CliRunner().invoke(app, ["ask", "?", "--json", *flags])
    assert asked, result.output
    return asked[0]


def test_openais_client_passes_every_option_on_in_extra_body() -> None:
    own = {option.name: case_of(option).http for option in options_on(Surface.HTTP)}
    sent: list[RequestOptions] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(read_chat(parse(request.content), dict(request.headers), ["m"]))
        return httpx.Response(400, json={"error": {"message": "no more is asked"}})

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as transport,
        OpenAI(base_url="http://mesh/v1", api_key="any", max_retries=0, http_client=transport) as client,
        pytest.raises(Exception, match="no more is asked"),
    ):
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "?"}], extra_body={"hedgerow": own}
        )
    assert sent[0].request == by_http(read_chat, {}, **own).request
    assert sent[0].request.prompt.diet == pb.DIET_ALL


@pytest.fixture(scope="module")
def openapi() -> Draft202012Validator:
    """The schema of the object `hedgerow` in the HTTP API's description."""
    components = yaml.safe_load((REPOSITORY / "docs/openapi.yaml").read_text())["components"]
    return Draft202012Validator({"$ref": "#/components/schemas/Options", "components": components})


@each_on(Surface.HTTP)
def test_openapi_describes_an_option_as_it_is_read(option: RequestOption, openapi: Draft202012Validator) -> None:
    assert openapi.is_valid({option.name: case_of(option).http})
    assert not openapi.is_valid({option.name: None})
    assert not openapi.is_valid({f"{option.name}s": case_of(option).http})


def limited() -> Iterator[tuple[RequestOption, float]]:
    for option in OPTIONS:
        if option.place and option.limit:
            yield option, option.above if option.above is not None else (option.least or 0) - 1
            if option.most is not None:
                yield option, option.most + 1


@pytest.mark.parametrize(("option", "value"), list(limited()), ids=lambda each: getattr(each, "name", each))
def test_by_grpc_a_value_outside_of_the_limits_is_refused(
    option: RequestOption, value: float, openapi: Draft202012Validator
) -> None:
    assert not openapi.is_valid({option.name: value})
    request = pb.GenerateRequest()
    set_field(request, option, [value])
    with pytest.raises(InvalidInput) as caught:
        check_options(request)
    assert caught.value.message.startswith(f"{option.place}: {option.limit}, got ")


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.place and field_of(each).enum_type], ids=lambda each: each.name
)
def test_by_grpc_a_number_that_stands_for_no_word_is_refused(option: RequestOption) -> None:
    request, unknown = pb.GenerateRequest(), max(field_of(option).enum_type.values_by_number) + 1
    message, name = holder(request, option)
    if option.kind is Kind.WORDS:
        getattr(message, name).append(unknown)
    else:
        setattr(message, name, unknown)
    with pytest.raises(
        InvalidInput, match=rf"^{option.place}(\[0\])?: an? [A-Z]\w+, [01] to {unknown - 1}, got {unknown}"
    ):
        check_options(request)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.place], ids=lambda option: option.name)
def test_by_grpc_a_value_within_the_limits_is_not(option: RequestOption) -> None:
    check_options(case_of(option).request)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_files_written_from_the_table_are_up_to_date(path: Path) -> None:
    assert WRITTEN[path](path.read_text()) == path.read_text(), "run `make docs`"


def test_the_words_of_an_option_are_the_values_of_its_enum() -> None:
    for option in OPTIONS:
        if option.place and option.words and (enum := field_of(option).enum_type):
            assert option.words == tuple(numbers(enum)), option.name
            assert set(option.http_words) - set(option.words) <= {"auto"}, option.name


def test_an_option_has_one_name_and_is_documented() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert all(option.help.endswith(".") for option in OPTIONS)


def test_a_flag_of_the_command_line_has_the_name_of_the_keyword() -> None:
    named = set(inspect.signature(ask).parameters)
    assert named - SHOWN - REACHED - PARTS <= set(Request.__annotations__)
