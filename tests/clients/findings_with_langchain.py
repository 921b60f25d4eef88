"""langchain-openai with a stream that reports citations."""

from __future__ import annotations

from typing import Any

from checks import BASE_URL, tell
from langchain_openai import ChatOpenAI

FINDINGS = {"hedgerow": {"findings": True, "mesh_tools": ["weather", "news"]}}


def streamed() -> Any:
    model = ChatOpenAI(model="m", base_url=BASE_URL, api_key="any", max_retries=0, extra_body=FINDINGS)
    return "".join(chunk.content for chunk in model.stream("What is the weather?"))


def responses() -> Any:
    more = {"use_responses_api": True, "output_version": "v0", "extra_body": FINDINGS}
    model = ChatOpenAI(model="m", base_url=BASE_URL, api_key="any", max_retries=0, **more)
    return "".join(chunk.text for chunk in model.stream("What is the weather?"))


tell(streamed, responses)
