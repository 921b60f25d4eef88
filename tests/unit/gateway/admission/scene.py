"""Requests of a tenant."""

from __future__ import annotations

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question, prompt_tokens
from services.gateway.admission.quota import Allowance


def tenant(premium: bool = False, **allowance: float) -> Tenant:
    return Tenant("acme", premium=premium, allowance=Allowance(**allowance))


def request(**fields: object) -> Question:
    asked = pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Who are you?")], **fields)
    return Question(asked, prompt_tokens=prompt_tokens(asked.messages))
