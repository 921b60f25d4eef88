"""Whatever JSON comes, it is read or refused: a reader raises nothing else, and what it reads can be sent."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.errors import ModelUnknown
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.completions import read_completion
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.endpoints.generating import ReadBody
from services.gateway.http.fields import parse
from services.runtime.errors import InvalidInput

_READERS = [read_chat, read_completion, read_response, read_messages]
_SAID = """user assistant tool system function text auto none any json_schema json_object regex message function_call
function_call_output tool_use tool_result image image_url input_image input_audio base64 custom realtime
data:image/png;base64,AAAA data:, http://x http:// 5 -1 x"""
_NAMED = """role content type text image_url url input_audio data source name id call_id arguments output input function
tool_calls tool_call_id parameters input_schema schema json_schema strict description tool_use_id format include_usage
regex is_error budget_ms cache tier"""
_TOP = """messages system input instructions prompt tools tool_choice response_format text output_config stop
stop_sequences temperature top_p max_tokens max_completion_tokens max_output_tokens n best_of seed logit_bias logprobs
top_logprobs frequency_penalty stream stream_options hedgerow modalities include metadata thinking top_k
min_p repetition_penalty min_tokens ignore_eos stop_token_ids"""
_WORDS = st.sampled_from(_SAID.split())
_NAMES = st.sampled_from(_NAMED.split()) | st.text(max_size=3)
_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _WORDS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=12,
)
_BODIES = st.dictionaries(st.sampled_from(_TOP.split()), _VALUES, max_size=6)
_MESSAGE = st.fixed_dictionaries({"role": _WORDS, "content": _VALUES}, optional={"tool_calls": _VALUES, "type": _WORDS})
_OPTIONS = st.sampled_from(["budget-ms", "silence-ms", "max-cost-usd", "priority", "tier", "single-attempt"])


@pytest.mark.parametrize("read", _READERS)
@given(body=_BODIES, messages=st.lists(_MESSAGE, max_size=3))
def test_a_body_is_read_or_refused(read: ReadBody, body: dict[str, Any], messages: list[Any]) -> None:
    whole = {"model": "m", "max_tokens": 5, "messages": messages, "input": messages, "prompt": "x", **body}
    with suppress(InvalidInput, ModelUnknown):
        read(parse(json.dumps(whole).encode()), {}, ["m"]).request.SerializeToString()


@pytest.mark.parametrize("read", _READERS)
@given(name=_OPTIONS, value=_WORDS | st.text())
def test_a_header_is_read_or_refused(read: ReadBody, name: str, value: str) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [], "input": [], "prompt": "x"}
    with suppress(InvalidInput):
        read(parse(json.dumps(body).encode()), {f"x-hedgerow-{name}": value}, ["m"])
