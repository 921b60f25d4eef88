"""Third-party clients, unmodified, with a transparent gateway and without it: the provider gets the same requests, and
the client comes to the same result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.gateway.http.server.exchange import FOR_PROVIDERS
from tests.answering_provider import TEXT, answered
from tests.integration.foreign_clients import SCRIPTS, Installed, output
from tests.integration.unchanged.transparent import OPERATORS, Transparent, own_fields
from tests.recording_provider import Asked

# The first run fetches packages.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]


async def _same(served: Transparent, client: str) -> dict[str, Any]:
    """The result of each check of a script: the same with the gateway and without it, as were the requests."""
    served.provider.reset()
    served.provider.says = answered
    python, urls = Installed().python(client) / "python", (served.provider.url, f"{served.url}/v1")
    code, out, err = await output(python, SCRIPTS / f"provider_{client}.py", *urls)
    assert code == 0, err
    direct, came = json.loads(out.splitlines()[-1])
    assert not (raised := [text for text in direct.values() if isinstance(text, str)]), raised[0]
    assert came == direct
    asked = served.provider.asked
    sent, arrived = ([_plain(each) for each in asked if _is_relayed(each) is so] for so in (False, True))
    assert len(sent) > len(direct)
    assert arrived == sent
    return came


def _is_relayed(asked: Asked) -> bool:
    """Whether a request is the gateway's: its key is."""
    return OPERATORS in asked.headers.get("x-api-key", "") + asked.headers.get("authorization", "")


def _plain(asked: Asked) -> Any:
    """The parts of a request that must be the same."""
    headers = {name: text for name, text in asked.headers.items() if name.startswith(FOR_PROVIDERS)}
    return asked.path, own_fields(asked.body), headers


async def test_langchain_with_a_provider_of_each_api(served: Transparent) -> None:
    came = await _same(served, "langchain")
    assert came.keys() == {"openai_chat", "openai_responses", "anthropic", "anthropic_thinks"}
    assert {came[api]["json_schema"] for api in ("openai_chat", "openai_responses", "anthropic")} == {"Tokyo"}
    for turns in (came["openai_chat"]["loop_streamed"], came["anthropic"]["loop"]):
        assert [bool(calls) for _, calls, _ in turns] == [True, False]
        assert turns[-1][0] == TEXT


async def test_pydantic_ai_with_a_provider_of_each_api(served: Transparent) -> None:
    came = await _same(served, "pydantic_ai")
    assert came.keys() == {"openai_chat", "openai_responses", "anthropic", "anthropic_thinks"}
    for api in ("openai_chat", "openai_responses", "anthropic"):
        assert (came[api]["tools_streamed"][0], came[api]["native_streamed"]) == (TEXT, "city='Tokyo'")


async def test_instructor_with_a_provider_of_each_api(served: Transparent) -> None:
    came = await _same(served, "instructor")
    assert came.keys() == {"openai_chat", "openai_responses", "anthropic"}
    assert {mode["partial"] for api in ("openai_chat", "anthropic") for mode in came[api].values()} == {"Tokyo"}
    assert came["openai_responses"]["create"][0] == "Tokyo"
