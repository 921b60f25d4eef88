"""The backends and settings that stages use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.answer.stages.cache.verification import CacheVerification
from services.gateway.answer.stages.cache.write_behind import WriteBehind
from services.gateway.answer.summaries import Summaries
from services.gateway.config import TEMPLATE
from services.gateway.generation.shared import Shared
from services.gateway.output_validation.forms import Forms
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.settings.generation import CascadeSettings
from services.gateway.settings.prompt import SystemPromptSettings
from services.gateway.tools.toolbox import Toolbox
from services.gateway.upstream.cache import Cache
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.router import Routes


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Replacements of a model's answer, in `order`: an expired one of the cache, a model of a lower tier, the fixed
    text `template`."""

    order: Sequence[str] = ("stale", "smaller", "template")
    template: str = TEMPLATE


@dataclass(frozen=True, slots=True)
class Prompts:
    """The gateway's system prompts, by name, and the summaries of conversations."""

    system_prompts: Mapping[str, SystemPromptSettings] = field(default_factory=dict)
    summaries: Summaries | None = None


@dataclass(frozen=True, slots=True)
class Backends:
    """The backends of answers. `models`: the models behind their stack of policies."""

    cache: Cache | None
    cache_breaker: TenantAwareBreaker
    fleet: Fleet
    routes: Routes
    l1: L1Cache
    write_behind: WriteBehind
    models: Shared
    fallbacks: Fallbacks = Fallbacks()
    prompts: Prompts = Prompts()
    cascade: CascadeSettings = field(default_factory=CascadeSettings)
    tools: Toolbox | None = None
    verification: CacheVerification | None = None
    forms: Forms = field(default_factory=Forms)
