"""llama-index-llms-openai-like, with the settings that its documentation asks for."""

from __future__ import annotations

from typing import Any

from checks import BASE_URL, PICTURE, QUESTION, City, tell
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


WEATHER = FunctionTool.from_defaults(weather)


def model(**options: Any) -> OpenAILike:
    given = {"model": "m", "api_base": BASE_URL, "api_key": "any", "is_chat_model": True, "max_retries": 0}
    return OpenAILike(**{**given, "is_function_calling_model": True, **options})


def said(text: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text)]


def whole() -> Any:
    answer = model().chat(said(QUESTION))
    return [answer.message.content, answer.raw.usage.total_tokens]


def streamed() -> Any:
    return "".join(part.delta or "" for part in model().stream_chat(said(QUESTION)))


def completed() -> Any:
    """By the older completions."""
    return model(is_chat_model=False).complete(QUESTION).text


def tools() -> Any:
    able = model()
    answer = able.chat_with_tools([WEATHER], user_msg="How is the weather?")
    (called,) = able.get_tool_calls_from_response(answer)
    result = ChatMessage(role="tool", content="sunny", additional_kwargs={"tool_call_id": called.tool_id})
    return [called.tool_name, called.tool_kwargs, able.chat([*said("?"), answer.message, result]).message.content]


def tools_streamed() -> Any:
    able = model()
    *_, last = able.stream_chat_with_tools([WEATHER], user_msg="How is the weather?")
    return [(call.tool_name, call.tool_kwargs) for call in able.get_tool_calls_from_response(last)]


def schema_by_tool() -> Any:
    return model().as_structured_llm(City).chat(said(QUESTION)).raw.city


def schema() -> Any:
    return model(should_use_structured_outputs=True).as_structured_llm(City).chat(said(QUESTION)).raw.city


def picture() -> Any:
    image = ImageBlock(image=PICTURE.encode(), image_mimetype="image/png")
    return model().chat([ChatMessage(role="user", blocks=[TextBlock(text="?"), image])]).message.content


tell(whole, streamed, completed, tools, tools_streamed, schema, schema_by_tool, picture)
