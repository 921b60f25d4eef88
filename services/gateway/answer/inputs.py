"""The inputs of a model: the conversation, the transcript, image labels and tool results, and the masked texts in
them.

Stages add to them while they work, not with their results: the guard masks texts before the router and the cache read
them, and an agent's model reads each result before the stage ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from hedgerow.vision.v1 import vision_pb2
from services.gateway.admission.question import Question, prompt_tokens
from services.gateway.answer.prompt_builder import Asked, picture_lines, unplace_pictures
from services.gateway.guard.checks import Checks
from services.gateway.settings.prompt import SystemPromptSettings
from services.runtime.security.private_data import Names


@dataclass(slots=True)
class Privacy:
    """The findings of the guard in one request. `checks`: None without a guard. `guarded` is set, except while a guard
    works beside other stages: no text is sent before it is done. `private`: whether the request may hold private data,
    so that no other caller may share anything of it. `names` stand for private texts, the same in the whole prompt."""

    checks: Checks | None = None
    private: bool = False
    names: Names = field(default_factory=Names)
    guarded: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.guarded.set()

    @property
    def also_checked(self) -> Collection[str]:
        """The application's own texts that the guard checks: `system`, `prefix`, `tools`."""
        return self.checks.settings.also if self.checks else ()


def mask_messages(
    messages: Iterable[chat_pb2.Message], masked_texts: Mapping[str, str], *, system: bool
) -> tuple[chat_pb2.Message, ...]:
    """The conversation with masked texts. `system`: whether system messages are masked, too."""
    return tuple(
        message if message.role == chat_pb2.ROLE_SYSTEM and not system else _mask_message(message, masked_texts)
        for message in messages
    )


def mask_tools(tools: Sequence[chat_pb2.Tool], masked_texts: Mapping[str, str]) -> Sequence[chat_pb2.Tool]:
    """The tools with masked texts; unchanged where they have none."""
    if not any(text in masked_texts for tool in tools for text in (tool.description, tool.parameters)):
        return tools
    return [
        chat_pb2.Tool(
            name=tool.name,
            description=masked_texts.get(tool.description, tool.description),
            parameters=masked_texts.get(tool.parameters, tool.parameters),
            strict=tool.strict,
        )
        for tool in tools
    ]


def _mask_message(message: chat_pb2.Message, masked_texts: Mapping[str, str]) -> chat_pb2.Message:
    if not any(text in masked_texts for text in (message.content, *(call.arguments for call in message.tool_calls))):
        return message
    other = chat_pb2.Message()
    other.CopyFrom(message)
    other.content = masked_texts.get(message.content, message.content)
    if other.content != message.content:  # places in the text are no longer known
        other.ClearField("documents")
        unplace_pictures(other)
    for call in other.tool_calls:
        call.arguments = masked_texts.get(call.arguments, call.arguments)
    return other


@dataclass(slots=True)
class Inputs:
    """The inputs that stages add to. `system_prompts`: the gateway's own system prompts, by name."""

    question: Question
    privacy: Privacy
    system_prompts: Mapping[str, SystemPromptSettings] = field(default_factory=dict)
    transcript: str = ""
    labels: Sequence[vision_pb2.Labels] = ()  # of each picture
    results: Sequence[tuple[str, str]] = ()  # names of tools, and the text of each result
    incomplete: bool = False  # a part of the question is unknown: no other caller may share the answer
    masked_texts: Mapping[str, str] = field(default_factory=dict)  # texts, and their masked form
    masked_fields: Mapping[str, str] = field(default_factory=dict)  # likewise, for other fields of the original body
    prompt: Sequence[chat_pb2.Message] = ()  # what the model reads, where it differs from the conversation
    added: Sequence[str] = ()  # lines of context, of a deployment's own stages
    cache_key_computed: bool = False
    has_mesh_tool_calls: bool = False  # in the prompt, by a model
    _asked: Asked | None = None

    @property
    def asked(self) -> Asked:
        """The question, with the transcript and image labels so far."""
        if self._asked is None:
            self._asked = self._build()
        return self._asked

    def for_model(self) -> Sequence[chat_pb2.Message]:
        """The conversation as a model reads it."""
        return self.prompt or self.asked.for_model()

    @property
    def prompt_tokens(self) -> int:
        """An estimate of the tokens of the prompt without its context."""
        if self.question.recording != "question":
            return self.question.prompt_tokens
        return prompt_tokens(self.asked.messages, self.question.request.tools)

    @property
    def picture_lines(self) -> Sequence[str]:
        """The lines for a model without vision."""
        vision = self.question.vision
        return picture_lines(self.labels, vision.note if vision else "")

    def take_transcript(self, text: str) -> None:
        self.transcript, self._asked = text, None

    def take_labels(self, labels: Sequence[vision_pb2.Labels]) -> None:
        self.labels, self._asked = labels, None

    def add_context(self, lines: Sequence[str]) -> None:
        """Add lines to the context. Raises `RuntimeError` once the key for the cache is computed without them."""
        if self.cache_key_computed:
            raise RuntimeError("context comes before the cache: name `cache` in the stage's `before`")
        self.added, self._asked = (*self.added, *lines), None

    def take_results(self, results: Sequence[tuple[str, str]]) -> None:
        """Add the results of tools that were called before any model."""
        self.results, self._asked = results, None

    def mask(self, masked_texts: Mapping[str, str], fields: Mapping[str, str]) -> None:
        """Replace these texts for models, in the conversation and in other fields."""
        self.masked_texts, self.masked_fields, self._asked = masked_texts, fields, None

    def prepare(self, prompt: Sequence[chat_pb2.Message]) -> None:
        """Have models read this prompt in place of the conversation."""
        self.prompt = prompt

    def continue_with(self, turns: Sequence[chat_pb2.Message]) -> None:
        """Add a model's calls of mesh tools and their results to the prompt."""
        self.prompt, self.has_mesh_tool_calls = [*self.for_model(), *turns], True

    def mark_incomplete(self) -> None:
        """Note that a part of the question is unknown."""
        self.incomplete, self._asked = True, None

    def _build(self) -> Asked:
        request, recording = self.question.request, self.question.recording
        messages, context = tuple(request.messages), list(self.picture_lines)
        if recording == "question":
            messages = (*messages, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=self.transcript))
        elif self.transcript:
            context.append(f"audio: {self.transcript}")
        context += self.added
        pictures = tuple(image.data for image in request.images) if self.question.pixels else ()
        system_prompt = self.system_prompts.get(request.prompt.system)
        system = f"{request.prompt.system}: {system_prompt.model_dump_json()}" if system_prompt else ""
        if self.masked_texts:
            messages = mask_messages(messages, self.masked_texts, system="system" in self.privacy.also_checked)
            context = [self.masked_texts.get(line, line) for line in context]
        return Asked(
            messages,
            tuple(context),
            whole=not self.incomplete,
            pictures=pictures,
            system=system,
            results=tuple(self.results),
        )
