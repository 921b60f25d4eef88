from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse

from hedgerow import Tls
from services.runtime import probe

Answer = Callable[..., HealthCheckResponse]


class FakeError(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


class FakeChannel:
    """Answers each call by `answer(request, timeout=…)`."""

    def __init__(self, answer: Answer):
        self._answer = answer

    def __enter__(self) -> FakeChannel:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def unary_unary(self, *_: object, **__: object) -> Answer:
        return self._answer

    unary_stream = unary_unary


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Makes every channel the probe opens answer so."""

    def use(answer: Answer) -> None:
        monkeypatch.setattr(probe, "open_blocking_channel", lambda address, tls: FakeChannel(answer))

    return use


def says(status: int) -> Answer:
    return lambda request, timeout: HealthCheckResponse(status=status)


def refuses(request: Any, timeout: float) -> HealthCheckResponse:
    raise FakeError


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (says(HealthCheckResponse.SERVING), 0, "SERVING"),
        (says(HealthCheckResponse.NOT_SERVING), 1, "NOT_SERVING"),
        (refuses, 1, "UNAVAILABLE"),
    ],
)
def test_only_a_serving_service_is_healthy(
    answers: Any, capsys: pytest.CaptureFixture[str], answer: Answer, code: int, said: str
) -> None:
    answers(answer)
    assert (probe.main(["127.0.0.1:50050"], {}), capsys.readouterr().out) == (code, f"{said}\n")


def test_a_service_that_hangs_is_given_up_after_the_time(answers: Any) -> None:
    given: list[float] = []

    def hang(request: Any, timeout: float) -> HealthCheckResponse:
        given.append(timeout)
        raise FakeError

    answers(hang)
    probe.ask("127.0.0.1:50050", None, timeout_s=0.25)
    assert given == [0.25]


def test_in_a_container_the_service_asks_with_its_own_certificate() -> None:
    environment = {"HOME": "/", "HEDGEROW_ROUTER_TLS_DIR": "/tls", "HEDGEROW_ROUTER_ADDRESS": "0.0.0.0:1"}
    assert probe.own(environment) == Tls.from_folder("/tls", "router")


@pytest.mark.parametrize("environment", [{}, {"HEDGEROW_ROUTER_TLS_DIR": ""}, {"HEDGEROW_TLS_DIR": "/tls"}])
def test_without_a_services_certificate_it_asks_in_plain_text(environment: dict[str, str]) -> None:
    assert probe.own(environment) is None


def test_a_certificate_that_is_not_there_is_no_health(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(["127.0.0.1:50050", "--tls-dir", "/nowhere"], {}) == 1
    assert "tls.ca: a PEM file, got /nowhere/ca.crt" in capsys.readouterr().out
