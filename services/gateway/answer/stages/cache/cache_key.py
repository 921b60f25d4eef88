"""The key of a question: everything that may change an answer. The cache and single-flight use it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.effective import EffectiveSettings
from services.gateway.admission.identity import Tenant
from services.gateway.answer.inputs import Inputs, Privacy
from services.gateway.answer.prompt_builder import Asked
from services.gateway.cache_eligibility.choice import ANY, CacheEligibility, choose, within
from services.gateway.prompt import window
from services.gateway.settings.prompt import PromptSettings
from services.gateway.upstream.router import Routes
from services.runtime import question_key

_USUAL, _OMITS, _CHECKED = EffectiveSettings(), "untranslated: omit", "form: checked"
_LEAST_CUT = 3  # messages of the shortest conversation that can be cut
# Fields of a request that no answer depends on.
_OF_NO_EFFECT = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "store", "user"})


def cache_question(
    request: pb.GenerateRequest,
    asked: Asked,
    tenant: str,
    eligibility: CacheEligibility = ANY,
    identity: str = "",
    settings: EffectiveSettings = _USUAL,
) -> cache_pb2.Question:
    """The question as the cache keys it. `identity`: that of the models that may answer it. Of the `settings`: a
    request that refuses omissions must not get an answer without the omitted fields; a stored answer is not checked
    again; and a model reads another prompt if it is compressed or cut. A cascade's answer may be of a lower tier, so it
    is for cascades with the same checks."""
    named = f"model:{request.model}" if request.model else ""
    return cache_pb2.Question(
        tenant=tenant,
        model_class=named or f"tier:{pb.Tier.Name(request.tier).removeprefix('TIER_').lower()}",
        messages=asked.messages,
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
        attachments=[
            *asked.attachments(),
            *_own_words(request.original),
            *_digest(identity),
            *_digest(_OMITS if settings.omits else ""),
            *_digest(_CHECKED if settings.checks_form else ""),
            *_digest(_prompt(settings.prompt, asked.messages)),
            *_digest(_checks(request.cascade) if request.HasField("cascade") else ""),
        ],
        category=eligibility.category,
        exact_only=eligibility.allowed_hits == "exact",
        end_user=_whose(request.end_user) if eligibility.of_user else "",
    )


def _whose(names: Iterable[str]) -> str:
    """A digest of an end user: the names themselves are not stored."""
    return hashlib.sha256(json.dumps(["end user", *names]).encode()).hexdigest()


def _checks(cascade: pb.Cascade) -> str:
    """The checks of a cascade. Whether it streams at once changes no answer."""
    least = cascade.min_mean_logprob if cascade.HasField("min_mean_logprob") else None
    return f"cascade: {sorted(cascade.verifiers)} {least}"


def _prompt(settings: PromptSettings, messages: Sequence[chat_pb2.Message]) -> str:
    """How models read these messages; empty if that is usual, or makes no difference."""
    usual, changes = _USUAL.prompt, list[str]()
    if (compressed := settings.diet) != usual.diet and window.size(messages) >= settings.diet_from_bytes:
        changes.append(f"compressed: {compressed}")
    if settings.whole != usual.whole and len(messages) >= _LEAST_CUT:
        changes.append("whole")
    return ", ".join(changes)


def _own_words(original: chat_pb2.Original) -> list[str]:
    """A digest of the fields of the original body that the question does not have."""
    fields = {place: given for place, given in original.untranslated.items() if place not in _OF_NO_EFFECT}
    if not (fields or original.headers):
        return []
    words = json.dumps([sorted(fields.items()), sorted(original.headers.items())])
    return [hashlib.sha256(words.encode()).hexdigest()]


def _digest(identity: str) -> list[str]:
    return [hashlib.sha256(f"identity: {identity}".encode()).hexdigest()] if identity else []


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """The identity of one question. `key`: the same for equal questions; empty where no other caller may share the
    answer. `question`: as the cache gets it; None where it is not for the cache. `eligibility`: allowed hits."""

    key: bytes = b""
    question: cache_pb2.Question | None = None
    eligibility: CacheEligibility = ANY


_UNIDENTIFIED = CacheIdentity()


@dataclass(slots=True)
class Identifier:
    """Identifies one question, once it is complete."""

    inputs: Inputs
    tenant: Tenant
    privacy: Privacy
    routes: Routes
    _identity: CacheIdentity = _UNIDENTIFIED

    def identify(self) -> CacheIdentity:
        """The identity, with a key unless no other caller may share the answer. The key is computed once."""
        question = self.inputs.question
        if self._identity.key or self.privacy.private or not (self.inputs.asked.whole and question.shareable):
            return self._identity
        request, asked = question.request, self.inputs.asked
        said = (each.content for each in reversed(asked.messages) if each.role == chat_pb2.ROLE_USER)
        named = bool(request.end_user)
        eligibility = choose(request.cache, request.sampling, said, self.tenant.hits, names_user=named)
        if eligibility.drawn:
            return CacheIdentity(eligibility=eligibility)
        models = self.routes.identity(request.model)
        cached = cache_question(request, asked, self.tenant.name, eligibility, models, question.settings)
        cached.ignore_case = self.tenant.hits.ignore_case
        question_key.normalize(cached)
        eligibility, self.inputs.cache_key_computed = within(eligibility, cached.ByteSize()), True
        self._identity = CacheIdentity(
            question_key.digest(cached), None if eligibility.allowed_hits == "off" else cached, eligibility
        )
        return self._identity
