"""What is public of providers' models: contexts and prices, from the data that `genai-prices` brings, and which
families of models take pictures.

Nothing is asked of the network; a later release of the package has later data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

_NOON = time(12, tzinfo=UTC)  # some prices are lower at night; a file rendered twice on one day is the same
_OPENAI, _OF_REGIONS = "openai", ".api.openai.com"
_SEES = re.compile(
    r"(?:^|[/.])(?:"
    r"(?:chat)?gpt-4o(?!.*-(?:audio|realtime|search|transcribe|tts))|gpt-4\.[15]|gpt-4-turbo(?!-preview)|gpt-[5-9]"
    r"|o1(?!-(?:mini|preview))|o3(?!-mini)|o4-mini"
    r"|claude-(?!v?[12]\b|instant)"
    r"|gemini-(?:1\.5|[2-9]|(?:flash|pro)(?:-lite)?-latest)(?!.*-(?:audio|embedding|tts))|gemma-?3[-:](?:4|12|27)b"
    r"|grok-4|nova-(?:lite|premier|pro)|llama-?4|llama-3\.2-(?:11|90)b"
    r"|pixtral|mistral-small-?(?:3\.[12]|250[36]|latest)|mistral-medium-(?:3|250[58]|latest)"
    r"|(?:bak)?llava|glm-4(?:\.\d)?v|idefics|internvl|minicpm-[vo]|molmo|paligemma|phi-4-multimodal|qvq|smolvlm"
    r"|[\w.-]*?(?:-vision|[-\d]vl)(?![a-z])"
    r")"
)


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """A provider's model. Prices are in US dollars for a million tokens, those of short prompts where longer ones cost
    more. None: not known."""

    context_tokens: int | None = None
    input: float | None = None
    output: float | None = None
    cached_input: float | None = None
    cache_write: float | None = None


UNKNOWN = ProviderModel()


def find(url: str, model: str) -> ProviderModel:
    """The data on `model` at a provider's API; `UNKNOWN` for a server that is no provider's in the data, whatever its
    model is called."""
    host = urlsplit(url).hostname or ""
    return _find(host, url.rstrip("/"), model) if _is_public(host) else UNKNOWN


def sees(model: str) -> bool:
    """Whether a model of this name is of a family that takes pictures, on any server."""
    return _SEES.search(model.lower()) is not None


def _is_public(host: str) -> bool:
    """Whether it may be a provider's: the data takes half a second to load."""
    try:
        ip_address(host)
    except ValueError:
        return "." in host
    return False


@cache
def _find(host: str, url: str, model: str) -> ProviderModel:
    from genai_prices.data_snapshot import get_snapshot  # 1.6 MB of Python that few files need

    provider = _OPENAI if host.endswith(_OF_REGIONS) else None
    try:
        _, known = get_snapshot().find_provider_model(model, None, provider, None if provider else url)
    except LookupError:
        return UNKNOWN
    prices = known.get_prices(datetime.combine(datetime.now(UTC).date(), _NOON))
    return ProviderModel(
        known.context_window,
        _dollars(prices.input_mtok),
        _dollars(prices.output_mtok),
        _dollars(prices.cache_read_mtok),
        _dollars(prices.cache_write_mtok),
    )


def _dollars(price: Any) -> float | None:
    """A price, or the lowest of several that go by a prompt's length."""
    price = getattr(price, "base", price)
    return float(price) if isinstance(price, Decimal) else None
