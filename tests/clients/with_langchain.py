"""langchain-openai, as a chain would use it."""

from __future__ import annotations

from typing import Any

from checks import ANOTHER, BASE_URL, BUSY, PICTURE, QUESTION, RECORDING, SCHEMA, City, refused, tell
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


def model(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": "m", "base_url": BASE_URL, "api_key": "any", "max_retries": 0, **options})


def whole() -> Any:
    answer = model().invoke(QUESTION)
    return [answer.content, answer.usage_metadata["total_tokens"], answer.response_metadata["finish_reason"]]


def streamed() -> Any:
    chunks = list(model(stream_usage=True).stream(ANOTHER))
    usage = [chunk.usage_metadata["total_tokens"] for chunk in chunks if chunk.usage_metadata]
    return ["".join(chunk.content for chunk in chunks), usage]


def tools() -> Any:
    able, asked = model().bind_tools([weather]), [HumanMessage("How is the weather?")]
    answer = able.invoke(asked)
    (called,) = answer.tool_calls
    result = ToolMessage(weather.invoke(called["args"]), tool_call_id=called["id"])
    return [called["name"], called["args"], able.invoke([*asked, answer, result]).content]


def tools_streamed() -> Any:
    gathered = None
    for chunk in model().bind_tools([weather]).stream("How is the weather?"):
        gathered = chunk if gathered is None else gathered + chunk
    return [(call["name"], call["args"]) for call in gathered.tool_calls]


def schema() -> Any:
    return model().with_structured_output(City, method="json_schema").invoke(QUESTION).city


def schema_by_tool() -> Any:
    return model().with_structured_output(City, method="function_calling").invoke(QUESTION).city


def plain_schema() -> Any:
    return model().with_structured_output({"title": "City", **SCHEMA}, method="json_schema").invoke(QUESTION)


def picture() -> Any:
    url = {"url": f"data:image/png;base64,{PICTURE}"}
    return (
        model().invoke([HumanMessage([{"type": "text", "text": "?"}, {"type": "image_url", "image_url": url}])]).content
    )


def recording() -> Any:
    part = {"type": "input_audio", "input_audio": {"data": RECORDING, "format": "wav"}}
    return model().invoke([HumanMessage([part])]).content


def responses() -> Any:
    return model(use_responses_api=True).invoke(QUESTION).text


def responses_streamed() -> Any:
    return "".join(chunk.text for chunk in model(use_responses_api=True).stream(QUESTION))


def embeddings() -> Any:
    # As a server that takes texts alone needs it: else they are sent as OpenAI's tokens.
    able = OpenAIEmbeddings(model="auto", base_url=BASE_URL, api_key="any", check_embedding_ctx_length=False)
    return able.embed_documents(["one", "two"])


def unknown_model() -> Any:
    return refused(lambda: model(model="gpt-9").invoke(QUESTION))


def bad_input() -> Any:
    return refused(lambda: model(temperature=3).invoke(QUESTION))


def busy() -> Any:
    return refused(lambda: model().invoke(BUSY))


def retried() -> Any:
    return model(max_retries=2).invoke(f"{BUSY} Really?").content


tell(
    whole, streamed, tools, tools_streamed, schema, schema_by_tool, plain_schema, picture, recording, responses,
    responses_streamed, embeddings, unknown_model, bad_input, retried, busy,
)  # fmt: skip
