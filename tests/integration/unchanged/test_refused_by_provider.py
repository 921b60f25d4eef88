"""A client raises for what a provider refuses through the gateway what it raises for the provider itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.unchanged.transparent import Transparent

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
ASKED = [{"role": "user", "content": "?"}]
MESSAGE = "field_of_tomorrow: Extra inputs are not permitted"
# By status, errors as both APIs have them.
PROBLEMS: dict[int, dict[str, Any]] = {
    400: {"type": "invalid_request_error", "message": MESSAGE, "param": "field_of_tomorrow", "code": "unknown"},
    413: {"type": "request_too_large", "message": "Request exceeds the maximum size"},
    422: {"type": "invalid_request_error", "message": MESSAGE, "details": {"at": ["field_of_tomorrow"]}},
}
WHOLE_OR_STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def _refuse(served: Transparent, status: int) -> None:
    served.provider.reset()
    served.provider.error = status, {"type": "error", "error": PROBLEMS[status], "request_id": "req_1"}


async def _raised(ask: Callable[[], Awaitable[object]]) -> Any:
    """The error of a client: its class, and what it has read of the body."""
    try:
        await ask()
    except Exception as error:
        seen: Any = error
        body = seen.body.get("error", seen.body)
        return [type(error), seen.status_code, body, *(getattr(seen, name, None) for name in ("type", "code", "param"))]
    raise AssertionError("nothing was raised")


@WHOLE_OR_STREAMED
@pytest.mark.parametrize("status", PROBLEMS)
async def test_openais_client(served: Transparent, status: int, stream: bool) -> None:
    async def asked(base_url: str) -> Any:
        async with AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
            more = {"field_of_tomorrow": 1}
            return await _raised(
                lambda: client.chat.completions.create(model="gpt", messages=ASKED, stream=stream, extra_body=more)
            )

    _refuse(served, status)
    through = await asked(f"{served.url}/v1")
    assert through == await asked(served.provider.url)
    assert through[2] == PROBLEMS[status]
    assert len(served.provider.asked) == 2, "one call through the gateway, one direct"


@WHOLE_OR_STREAMED
@pytest.mark.parametrize("status", PROBLEMS)
async def test_anthropics_client(served: Transparent, status: int, stream: bool) -> None:
    from anthropic import AsyncAnthropic

    async def asked(base_url: str) -> Any:
        async with AsyncAnthropic(base_url=base_url, api_key="any", max_retries=0) as client:
            asking = {"max_tokens": 9, "messages": ASKED, "stream": stream, "extra_body": {"field_of_tomorrow": 1}}
            return await _raised(lambda: client.messages.create(model="claude", **asking))

    _refuse(served, status)
    through = await asked(served.url)
    assert through == await asked(served.provider.url.removesuffix("/v1"))
    assert through[2] == PROBLEMS[status]


async def test_a_caller_of_another_api_gets_the_error_in_the_words_of_that_api(served: Transparent) -> None:
    _refuse(served, 400)
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="claude", messages=ASKED)
    assert refused.value.body["code"] == "invalid_value"
    assert MESSAGE in refused.value.body["message"]


async def test_a_failure_of_the_provider_has_its_words_and_the_account_has_not(served: Transparent) -> None:
    served.provider.reset()
    said = "input (4098 tokens) is too large to process: increase the physical batch size"
    served.provider.error = 500, {"error": {"code": 500, "message": said, "type": "server_error"}}
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model="gpt", messages=ASKED)
    assert failed.value.status_code == 503
    assert failed.value.body["message"] == f"gpt: UNAVAILABLE: the provider answered HTTP 500: {said}"
    (retried,) = failed.value.response.json()["hedgerow"]["decisions"]
    assert retried["reason"] == "gpt: UNAVAILABLE: the provider answered HTTP 500"
