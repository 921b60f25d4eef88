"""A provider that cannot be reached is logged once, with the model, the URL and the reason, until it answers again."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest
from grpc_health.v1 import health_pb2
from opentelemetry.trace import INVALID_SPAN

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.config import LlmSettings
from services.llm.engine import Message, Outage, Request
from services.llm.errors import EngineBusy, EngineDown, ProviderRefused
from services.llm.providers.config import OpenAISettings
from services.llm.providers.openai import OpenAIEngine
from services.llm.providers.outages import Outages
from services.llm.providers.transport.wire import Broken, NoReply, NotConnected
from services.llm.servicer import LLMServicer
from services.runtime.deadline import Deadline
from services.runtime.rpc.boundary import Call
from tests.clock import PausedClock
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, event

HELLO = Request((Message("user", "Hello."),))
WHERE = "model big at http://provider.test/v1"


async def asked(engine: OpenAIEngine) -> str:
    try:
        return "".join([chunk.text async for chunk in engine.generate(HELLO, Deadline.never())])
    except EngineDown as error:
        return error.message


async def test_an_outage_is_logged_once_until_a_request_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "services.llm")
    provider = SimulatedProvider(refusals=[Broken("connection refused") for _ in range(3)])
    engine = provider.engine()
    await engine.warm_up(lambda _: None)
    said = [await asked(engine) for _ in range(4)]
    provider.status = 503
    said.append(await asked(engine))
    assert said[0] == said[1] == "the provider cannot be reached, or broke off: connection refused"
    assert said[2] == said[3] == "Hello."
    assert caplog.record_tuples == [
        (
            "services.llm.providers.outages",
            logging.WARNING,
            f"{WHERE}: the provider cannot be reached: connection refused",
        ),
        ("services.llm.providers.outages", logging.INFO, f"{WHERE} answers again"),
        ("services.llm.providers.outages", logging.WARNING, f"{WHERE}: the provider answered HTTP 503"),
    ]


@pytest.mark.paused
async def test_a_provider_that_is_away_is_tried_again_and_its_return_ends_the_outage() -> None:
    provider = SimulatedProvider(refusals=[NoReply("connection refused") for _ in range(3)])
    engine = provider.engine()
    reason = await asked(engine)
    assert engine.load().outage == Outage("http://provider.test/v1", reason, away=True)
    watch = asyncio.create_task(engine.wait_failed())
    while engine.load().outage:
        await asyncio.sleep(1.0)
    assert [asked.method for asked in provider.requests] == ["POST", "GET", "GET", "GET"]
    watch.cancel()


@pytest.mark.paused
async def test_the_service_of_a_provider_that_is_away_is_not_serving_until_it_has_a_connection() -> None:
    """A provider that has never been there is not waited for: its address may be wrong."""
    provider = SimulatedProvider()
    engine, said, reasons = provider.engine(), list[int](), list[str]()
    servicer = LLMServicer(engine)
    following = asyncio.create_task(servicer.follow_health(said.append))
    request = llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Hello.")])
    for refusals in (1, 3):
        provider.refusals = [NotConnected("connection refused", kept=False) for _ in range(refusals)]
        with pytest.raises(EngineDown) as refused:
            _ = [reply async for reply in servicer.Generate(request, Call((), Deadline.never(), INVALID_SPAN))]
        reasons.append(refused.value.reason)
        await engine.warm_up(lambda _: None)
    assert reasons == [EngineDown.reason, "STARTING"]
    tasks = [asyncio.create_task(engine.wait_failed()), following]
    await asyncio.sleep(0.1)
    assert said == [health_pb2.HealthCheckResponse.NOT_SERVING]
    await asyncio.sleep(5)
    assert said[1:] == [health_pb2.HealthCheckResponse.SERVING]
    for task in tasks:
        task.cancel()


async def test_a_connection_does_not_end_an_outage_of_a_provider_that_answers_with_errors() -> None:
    provider = SimulatedProvider(status=401)
    engine = provider.engine()
    with pytest.raises(ProviderRefused):
        _ = [chunk async for chunk in engine.generate(HELLO, Deadline.never())]
    await engine.warm_up(lambda _: None)
    model = await LLMServicer(engine).GetModel(llm_pb2.GetModelRequest(), Call((), Deadline.never(), INVALID_SPAN))
    assert (model.outage.url, model.outage.reason) == ("http://provider.test/v1", "the provider rejects the credential")


def test_the_reason_of_an_outage_is_its_latest_one() -> None:
    outages = Outages("big", "http://provider.test/v1")
    outages.began("the provider cannot be reached: connection refused", away=True)
    outages.note(ProviderRefused("the provider rejects the credential"))
    assert outages.now == Outage("http://provider.test/v1", "the provider rejects the credential")


@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_a_connection_that_cannot_be_made_is_said_in_words_without_the_host(version: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nothing listens
        refuses = f"127.0.0.1:{unused.getsockname()[1]}"
        for host, why in ((refuses, "connection refused"), ("provider.invalid", "host name not found")):
            own = OpenAISettings(base_url=f"http://{host}/v1", model="big", http_version=version)
            engine = OpenAIEngine(LlmSettings(engine="openai", openai=own))
            assert await asked(engine) == f"the provider cannot be reached, or broke off: {why}"
            await engine.close()


async def test_a_server_without_tls_is_said_in_words() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        engine = OpenAIEngine(LlmSettings(engine="openai", openai=OpenAISettings(base_url=url, model="big")))
        said = "the provider cannot be reached, or broke off: TLS handshake failed: the server may speak plain HTTP"
        assert await asked(engine) == said
        await engine.close()


async def test_rate_limits_of_a_provider_are_reported() -> None:
    provider = SimulatedProvider(status=429)
    engine = provider.engine()
    with pytest.raises(EngineBusy):
        _ = [chunk async for chunk in engine.generate(HELLO, Deadline.never())]
    assert engine.load().outage == Outage("http://provider.test/v1", "the provider limits the rate")


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ((Broken("the connection ended"),), "the provider broke off in mid-answer: the connection ended"),
        (('data: {"error": {"type": "overloaded_error", "message": "m"}}\n\n',), "the provider is overloaded"),
        (('data: {"error": {"message": "m"}}\n\n',), "the provider answered HTTP 502"),
        (("data: {\n\n",), "the provider sent an event that its API does not have"),
        ((), "the provider ended the stream in mid-answer"),
        (('data: {"error": {"type": "invalid_request_error", "message": "m"}}\n\n',), None),
        ((event("", "stop"), Broken("the connection ended")), None),
    ],
)
async def test_failures_of_a_provider_in_mid_answer_are_reported(
    rest: tuple[str | Broken, ...], reason: str | None
) -> None:
    engine = SimulatedProvider((event("Hello"), *rest)).engine()
    assert await asked(engine) == "Hello"
    assert engine.load().outage == (Outage("http://provider.test/v1", reason) if reason else None)


async def test_an_event_that_cannot_be_read_is_not_called_a_stream_that_ended() -> None:
    assert await asked(SimulatedProvider(("data: {\n\n",)).engine()) == (
        "the provider sent an event that its API does not have"
    )


def test_a_provider_that_fails_now_and_then_has_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "services.llm")
    clock = PausedClock()
    outages = Outages("big", "http://provider.test/v1", clock)
    for pause_s in (0, 1, 1, 60):
        clock.advance(pause_s)
        outages.began("the provider answered HTTP 503")
        outages.ended()
    began, ended = f"{WHERE}: the provider answered HTTP 503", f"{WHERE} answers again"
    assert caplog.messages == [began, ended, began, ended]


def test_credentials_of_the_url_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    Outages("big", "https://user:secret@provider.test/v1?key=hidden").began("it is away")
    assert "provider.test/v1" in caplog.text
    assert "secret" not in caplog.text
    assert "hidden" not in caplog.text
