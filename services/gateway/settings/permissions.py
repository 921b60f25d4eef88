"""What a provider may be asked for that costs more than the answer, or that keeps something there: the fields of
OpenAI's and Anthropic's requests that do so, and the permission that each needs. And what no setting permits: fields
of servers like LiteLLM's, vLLM's and SGLang's that would move a request to another account or host, or to what has been
kept of another tenant's prompts.

An account at a provider is the operator's: what one tenant keeps there, others may find, and what runs there the
operator pays. Source: the request types of the packages `openai` and `anthropic`; for other servers
https://openrouter.ai/docs/api-reference/parameters, https://docs.litellm.ai/docs/completion/input and
https://docs.vllm.ai/en/latest/serving/openai_compatible_server/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tenants import Permission

PERMISSIONS: tuple[Permission, ...] = get_args(Permission)


@dataclass(frozen=True, slots=True)
class Beyond:
    """One thing that needs `permission` (None: no setting permits it); without it there may be `instead`. The rest are
    regular expressions that match as a whole: `place` the field's place in the request, `free` the JSON that asks for
    nothing more. With a `key`, only a field that has a text `value` at `key` (names with points between, arrays passed
    over) needs it."""

    permission: Permission | None
    place: str
    instead: str = "none"
    free: str = ""
    key: str = ""
    value: str = ".*"


# Tools that the caller runs, whatever their provider calls them. Those of any other type run at the provider.
_CALLERS_TOOLS = (
    "function|custom|namespace|tool_search|tool_search_tool_.*|bash_.*|text_editor_.*|memory_.*|computer|computer_.*"
    "|browser_.*|local_shell|apply_patch"
)
_CALLERS, _IN_IT = "a tool that the caller runs", "text, or data in the request itself"
_PARTS = r".*\]"  # elements of arrays: what messages are made of, and tools
_MEDIA = "images?|videos?|audios?|pdfs?"  # Cohere's, Jina's and Qwen's names for an address, or for data in base64
_ADDRESS = r"\s*(?!data:)[a-z][a-z\d+.-]*:\S.*"

_ACCOUNTS = (  # of LiteLLM's, which sends a request with them to another host, or with other credentials
    "api_base|base_url|api_key|api_version|organization|headers|extra_headers|extra_query|custom_llm_provider"
    "|deployment_id|model_list|user_config|credentials|ssl_verify|(litellm|aws|azure|vertex|watsonx)_.*"
)
_HOSTS = "kv_transfer_params|bootstrap_(host|port|room)"  # of vLLM and SGLang: whence keys and values are read
_CODE = "logits_processors|custom_logit_processor"  # of vLLM and SGLang

BEYOND: tuple[Beyond, ...] = (
    # Another account, another host, or the tenant's own code there.
    Beyond(None, f"{_ACCOUNTS}|{_HOSTS}|{_CODE}"),
    # What other tenants' prompts have left in a cache: vLLM's and SGLang's salts, LiteLLM's namespaces.
    Beyond(None, "cache_salt|extra_key"),
    Beyond(None, "cache", "none with a namespace", key="namespace"),
    # Fields that nothing here looks at: LiteLLM and Gemini put them into the request.
    Beyond("extra_body", "extra_body"),
    # Kept at the provider, or gone on with from what is kept there.
    Beyond("store", "store", "false", free="false"),
    Beyond("store", "conversation|previous_response_id|prompt"),
    Beyond("background", "background", "false", free="false"),
    Beyond("prompt_cache_retention", "prompt_cache_retention", '"in_memory"', free='"in[-_]memory"'),
    Beyond("prompt_cache_retention", "prompt_cache_options", 'a ttl of "30m"', key="ttl", value="(?!30m$).*"),
    # At other prices.
    Beyond(
        "service_tier", "service_tier", '"auto", "default" or "standard_only"', free='"(auto|default|standard_only)"'
    ),
    Beyond("speed", "speed", '"standard"', free='"standard"'),
    Beyond("inference_geo", "inference_geo", '"global"', free='"global"'),
    # Models, or hosts of them, that the mesh has not chosen.
    Beyond("fallbacks", "fallbacks|models|route|provider|preset|lora_path|(context_window|content_policy)_fallbacks"),
    # Before the requests of others: vLLM serves lower numbers first.
    Beyond("priority", "priority", "0 or more", free=r"\d+(\.0*)?"),
    # More tokens than those of one answer.
    Beyond("n", "n|best_of", "1", free="1"),
    Beyond("prediction", "prediction"),
    Beyond("modalities", "modalities", '["text"]', free=r'\[("text")?\]'),
    Beyond("modalities", r"(messages\[\d+\]\.)?audio"),
    # Run at the provider, which sends what is asked to others.
    Beyond("server_tools", "web_search_options|search_parameters|mcp_servers|container|plugins|data_sources"),
    Beyond("server_tools", "enable_search", "false", free="false"),
    Beyond("server_tools", r"tools\[\d+\]", _CALLERS, key="type", value=f"(?!({_CALLERS_TOOLS})$).*"),
    # Read at the provider, by what it has been given before or can reach.
    Beyond("files", _PARTS, _IN_IT, key=r"(.*\.)?(file_id|file_url|file_ids|vector_store_ids)"),
    Beyond("files", _PARTS, _IN_IT, key=r"(.*\.)?\w+_url(\.url)?", value="(?!data:).*"),
    Beyond("files", _PARTS, _IN_IT, key=r"(.*\.)?source\.type", value="url|file"),
    Beyond("files", _PARTS, "no file", key=r"(content\.)?type", value="file|input_file|container_upload"),
    Beyond("files", rf"(?!tools\[){_PARTS}", _IN_IT, key=rf"(.*\.)?({_MEDIA})(\.url)?", value=_ADDRESS),
    Beyond("files", r"inputs?\[\d+\]", _IN_IT, key="url", value=_ADDRESS),
    Beyond("files", rf"{_MEDIA}|((image|video|audio|pdf|file)_)?urls?", _IN_IT, key=".*", value=_ADDRESS),
)
# What makes an answer more than one text of the model's own: it is neither stored nor another's, and not gone on with.
_OF_MORE: frozenset[Permission] = frozenset({"background", "files", "modalities", "n", "server_tools"})
_WITHOUT_TEXT = (chat_pb2.API_EMBEDDINGS, chat_pb2.API_RERANK, chat_pb2.API_MODERATIONS)
# Servers in Go take a field also in capital letters (https://pkg.go.dev/encoding/json#Unmarshal).
_PLACES = re.compile("|".join({each.place for each in BEYOND}), re.IGNORECASE)
_INDEX = re.compile(r"\[\d+\]")
_MOST_KNOWN, _LONGEST_KNOWN = 256, 64  # places whose rules are remembered, and characters of one
_LONGEST_KEY = 100  # characters: more than any rule's key has at its end


class _Rule(NamedTuple):
    beyond: Beyond
    key: re.Pattern[str]
    value: re.Pattern[str]


class _Rules(NamedTuple):
    """The rules that hold at one place, in the order of the table. `keys`: any key that a rule has."""

    rules: tuple[_Rule, ...]
    keys: re.Pattern[str]


def is_named(place: str) -> bool:
    """Whether a field at `place` may need a permission."""
    return _PLACES.fullmatch(place) is not None


def needed(place: str, given: str) -> Beyond | None:
    """What the field at `place` with the JSON `given` needs a permission for; None: nothing. A request may have 100,000
    such fields: elements of one array have the same rules, and their JSON is read once."""
    same = _INDEX.sub("[0]", place)
    here = _known_rules(same) if len(same) <= _LONGEST_KNOWN else _rules(same)
    found: list[tuple[str, str]] | None = None
    for beyond, is_key, is_value in here.rules:
        if not beyond.key:
            if not (beyond.free and re.fullmatch(beyond.free, given)):
                return beyond
            continue
        if found is None:
            found = [(key, text) for key, text in texts(json.loads(given)) if here.keys.fullmatch(key)]
        if any(is_key.fullmatch(key) and is_value.fullmatch(text) for key, text in found):
            return beyond
    return None


def _rules(place: str) -> _Rules:
    beyond = [each for each in BEYOND if re.fullmatch(each.place, place, re.IGNORECASE)] if is_named(place) else []
    rules = tuple(
        _Rule(each, re.compile(each.key, re.IGNORECASE), re.compile(each.value, re.DOTALL | re.IGNORECASE))
        for each in beyond
    )
    return _Rules(rules, re.compile("|".join(f"(?:{each.key})" for each in beyond if each.key), re.IGNORECASE))


_known_rules = lru_cache(_MOST_KNOWN)(_rules)


def choices(original: chat_pb2.Original) -> int:
    """How many answers a request asks for. APIs other than chat completions have no field `n`: nothing checks it."""
    chat = original.api == chat_pb2.API_CHAT_COMPLETIONS
    return int(float(original.untranslated.get("n", 1))) if chat else 1  # JSON has 2.0 for 2


def is_plain_text(original: chat_pb2.Original) -> bool:
    """Whether the answer is one text that the request and the model alone make."""
    if original.api in _WITHOUT_TEXT:
        return False
    found = (needed(place, given) for place, given in original.untranslated.items())
    return not any(beyond and beyond.permission in _OF_MORE for beyond in found)


def texts(given: Any) -> Iterator[tuple[str, str]]:
    """Every text in JSON, with the last of the names that lead to it: 10,000 members would each have a long one's."""
    waiting = [("", given)]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, str):
            yield path, each
        elif isinstance(each, list):
            waiting += [(path, one) for one in each]
        elif isinstance(each, dict):
            waiting += [((f"{path}.{name}" if path else name)[-_LONGEST_KEY:], one) for name, one in each.items()]
