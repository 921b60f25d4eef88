"""The guard's checks of one request, and their findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.question import Question, prompt_tokens
from services.gateway.answer.prompt_builder import Asked, picture_lines
from services.gateway.guard.checks import Checks
from services.gateway.settings.prompt import SystemPromptSettings
from services.runtime.security.private_data import Names


@dataclass(slots=True)
class Privacy:
    """`checks`: None where nothing is looked for. `guarding`: whether the guard still looks; nothing leaves before it
    is done. `private`: the request may hold what is private, so no other caller may share anything of it. `names` stand
    for what is private, the same in the whole prompt."""

    checks: Checks | None = None
    guarding: bool = False
    private: bool = False
    names: Names = field(default_factory=Names)

    @property
    def looked_at_also(self) -> Collection[str]:
        """Which of the application's own words the guard looks through: `system`, `prefix`, `tools`."""
        return self.checks.settings.also if self.checks else ()


def in_messages(
    messages: Iterable[chat_pb2.Message], hidden: Mapping[str, str], *, system: bool
) -> tuple[chat_pb2.Message, ...]:
    """The conversation. `system`: whether that holds for system messages, too."""
    return tuple(
        message if message.role == chat_pb2.ROLE_SYSTEM and not system else _in_message(message, hidden)
        for message in messages
    )


def in_tools(tools: Sequence[chat_pb2.Tool], hidden: Mapping[str, str]) -> Sequence[chat_pb2.Tool]:
    """The tools; as they were where there is nothing to hide in them."""
    if not any(text in hidden for tool in tools for text in (tool.description, tool.parameters)):
        return tools
    return [
        chat_pb2.Tool(
            name=tool.name,
            description=hidden.get(tool.description, tool.description),
            parameters=hidden.get(tool.parameters, tool.parameters),
            strict=tool.strict,
        )
        for tool in tools
    ]


def _in_message(message: chat_pb2.Message, hidden: Mapping[str, str]) -> chat_pb2.Message:
    if not any(text in hidden for text in (message.content, *(call.arguments for call in message.tool_calls))):
        return message
    other = chat_pb2.Message()
    other.CopyFrom(message)
    other.content = hidden.get(message.content, message.content)
    for call in other.tool_calls:
        call.arguments = hidden.get(call.arguments, call.arguments)
    return other


@dataclass(slots=True)
class Inputs:
    """Stages add to it. `kept`: the gateway's own system prompts, by name."""

    question: Question
    privacy: Privacy
    kept: Mapping[str, SystemPromptSettings] = field(default_factory=dict)
    heard: str = ""
    sights: pb.Sights | None = None
    results: Sequence[tuple[str, str]] = ()  # tools, and what each said
    missed: bool = False  # something of the question was not seen or heard: the answer is for no other caller
    hidden: Mapping[str, str] = field(default_factory=dict)  # texts with names in the place of what is private
    hidden_fields: Mapping[str, str] = field(default_factory=dict)  # likewise, of a caller's own words
    prompt: Sequence[chat_pb2.Message] | None = None  # what the model reads, where that is not all that was asked
    added: Sequence[str] = ()  # lines of context, of a deployment's own stages
    identified: bool = False  # whether the cache knows the question by now
    called: bool = False  # whether the prompt has calls that a model made of the mesh's tools
    _asked: Asked | None = None

    @property
    def asked(self) -> Asked:
        """The question, with what was seen and heard by now."""
        if self._asked is None:
            self._asked = self._put_together()
        return self._asked

    def for_model(self) -> Sequence[chat_pb2.Message]:
        """The conversation as a model reads it."""
        return self.asked.for_model() if self.prompt is None else self.prompt

    @property
    def prompt_tokens(self) -> int:
        """An estimate, of what is asked without its context."""
        if self.question.recording != "question":
            return self.question.prompt_tokens
        return prompt_tokens(self.asked.messages, self.question.request.tools)

    @property
    def picture_lines(self) -> Sequence[str]:
        """The pictures, as a model without vision reads them."""
        seeing = self.question.seeing
        return picture_lines(self.sights, seeing.note if seeing else "")

    def hear(self, text: str) -> None:
        """Add the recording's transcript."""
        self.heard, self._asked = text, None

    def see(self, sights: pb.Sights) -> None:
        """Add the pictures' labels."""
        self.sights, self._asked = sights, None

    def add_context(self, lines: Sequence[str]) -> None:
        """Add lines to the context. Raises `RuntimeError` once the cache knows the question without them."""
        if self.identified:
            raise RuntimeError("context comes before the cache: name `cache` in the stage's `before`")
        self.added, self._asked = (*self.added, *lines), None

    def take_results(self, results: Sequence[tuple[str, str]]) -> None:
        """Add the results of tools that were called before any model."""
        self.results, self._asked = results, None

    def hide(self, hidden: Mapping[str, str], fields: Mapping[str, str]) -> None:
        """Have models read other texts in the place of these, in the conversation and in other fields."""
        self.hidden, self.hidden_fields, self._asked = hidden, fields, None

    def miss(self) -> None:
        """Note that something of the question is not known."""
        self.missed, self._asked = True, None

    def _put_together(self) -> Asked:
        request, recording = self.question.request, self.question.recording
        messages, context = tuple(request.messages), list(self.picture_lines)
        if recording == "question":
            messages = (*messages, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=self.heard))
        elif self.heard:
            context.append(f"audio: {self.heard}")
        context += self.added
        pictures = tuple(image.data for image in request.images) if self.question.pixels else ()
        kept = self.kept.get(request.prompt.system)
        system = f"{request.prompt.system}@{kept.version}" if kept else ""
        if self.hidden:
            messages = in_messages(messages, self.hidden, system="system" in self.privacy.looked_at_also)
            context = [self.hidden.get(line, line) for line in context]
        return Asked(
            messages,
            tuple(context),
            whole=not self.missed,
            pictures=pictures,
            system=system,
            results=tuple(self.results),
        )
