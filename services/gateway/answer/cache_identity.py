"""The key of a question: the cache and equal questions know it by that."""

from __future__ import annotations

from dataclasses import dataclass, field

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.answer.cache_question import cache_question
from services.gateway.answer.inputs import Inputs
from services.gateway.answer.privacy import Privacy
from services.gateway.cache_eligibility.choice import ANY, Choice, choose, within
from services.gateway.cache_eligibility.reasons import Bypassed
from services.gateway.upstream.invalidations import Known
from services.gateway.upstream.routes import Routes
from services.runtime import question_key


@dataclass(slots=True)
class CacheIdentity:
    """`omits`: whether fields are left out that the model's API does not have."""

    inputs: Inputs
    tenant: Tenant
    privacy: Privacy
    routes: Routes
    omits: bool
    question: cache_pb2.Question | None = None  # as the cache knows it; None: not for the cache
    key: bytes = b""  # of equal questions, as the cache has it; empty where none is equal to it
    hits: Choice = ANY  # what the cache may do for it, once it is identified
    known: Known = field(default_factory=Known)  # of removals, when the cache was asked
    stale: cache_pb2.Answer | None = None  # an answer whose time is over

    def identify(self) -> None:
        """Find the key, unless the question is for no other caller."""
        question = self.inputs.question
        if self.key or self.privacy.private or not (self.inputs.asked.whole and question.shareable):
            return
        request, asked = question.request, self.inputs.asked
        said = [each.content for each in reversed(asked.messages) if each.role == chat_pb2.ROLE_USER]
        named = bool(request.end_user)
        self.hits = choose(request.cache, request.sampling, said, self.tenant.hits, names_user=named)
        if self.hits.drawn:
            return
        models = self.routes.identity(request.model)
        cached = cache_question(request, asked, self.tenant.name, self.hits, models, omits=self.omits)
        cached.ignore_case = self.tenant.hits.ignore_case
        question_key.normalize(cached)
        self.key, self.inputs.identified = question_key.digest(cached), True
        self.hits = within(self.hits, cached.ByteSize())
        self.question = None if self.hits.hits == "off" else cached

    @property
    def bypassed(self) -> Bypassed | None:
        """Why the cache is left out; None: it is not, as far as is known by now."""
        if unshared := self.inputs.question.unshared:
            return unshared
        if self.privacy.private or not self.inputs.asked.whole:
            return Bypassed.PRIVATE if self.privacy.private else Bypassed.INCOMPLETE
        return self.hits.reason if self.hits.hits == "off" else None
