"""The gateway's asyncio client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import grpc

from hedgerow import _convert
from hedgerow._answer_stream_aio import AsyncAnswerStream
from hedgerow._base_aio import AsyncServiceClient, broken_off, settle, value_of
from hedgerow._conversation import INTERRUPT, IncomingTurns
from hedgerow._errors import HedgerowError
from hedgerow._events import Answer, Final
from hedgerow._given import refuse_unknown
from hedgerow._incoming import Callbacks, IncomingBatch
from hedgerow._into import parsed, with_schema
from hedgerow._options import Media, Messages, Options, Request
from hedgerow._outgoing import DEFAULT_TARGET, METHODS, Caller, Outgoing
from hedgerow._peer import Peer
from hedgerow._request import live_blocks
from hedgerow._sending_aio import AsyncDuplexStream
from hedgerow._speech import AudioFormat
from hedgerow._status import from_rpc_error
from hedgerow._tls import Tls
from hedgerow._tool_loop import ToolLoop
from hedgerow._tools import ListedTool, ToolCall, ToolSource
from hedgerow._turns import ConversationEvent
from hedgerow.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from hedgerow.gateway.v1.gateway_pb2 import GenerateRequest

T = TypeVar("T")


class AsyncClient(AsyncServiceClient):
    """A gateway, over one pooled connection that is opened when first used. Safe to share between tasks of one loop.

    `target` is `host:port`, `unix:path` or `xds:///name`. `api_key` travels as `authorization: Bearer …`.
    `default_budget_ms` holds for requests that name no budget; without it, the gateway's own default does. Without
    `tls`, it is plain text, in which no API key is sent to another machine: then it raises `InvalidArgument`, unless
    `allow_plaintext_key` says so.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        api_key: str | None = None,
        default_budget_ms: int | None = None,
        tls: Tls | None = None,
        allow_plaintext_key: bool = False,
    ):
        super().__init__(
            Peer(target, api_key, tls=tls, allow_plaintext_key=allow_plaintext_key), gateway_pb2_grpc.GatewayServiceStub
        )
        self._caller = Caller(self._peer, default_budget_ms)

    def stream(
        self,
        messages: Messages | None = None,
        *,
        images: Media | Sequence[Media] = (),
        audio: Media | None = None,
        allow_fallback: bool = False,
        **options: Unpack[Options],
    ) -> AsyncAnswerStream:
        """Ask, and iterate over what happens. Raises `InvalidArgument` at once for what can never be sent.

        `images` and `audio` are the bytes of encoded files, or paths. With `audio`, the messages may be left out: what
        it says is then the question. When no model answers in time, the stream raises `DeadlineExceeded`; with
        `allow_fallback` it has the gateway's fixed text, and `Answer.is_fallback` is true.
        """
        out = self._caller.generate({"messages": messages, "images": images, "audio": audio, **options})
        return AsyncAnswerStream(partial(_begin, self._stub), out, self._peer, allow_fallback=allow_fallback)

    @overload
    async def ask(
        self,
        messages: Messages | None = None,
        *,
        images: Media | Sequence[Media] = (),
        audio: Media | None = None,
        on_token: Callable[[str], Any] | None = None,
        on_sentence: Callable[[str], Any] | None = None,
        on_complete: Callable[[Answer], Any] | None = None,
        on_replaced: Callable[[str], Any] | None = None,
        allow_fallback: bool = False,
        into: None = None,
        **options: Unpack[Options],
    ) -> Answer: ...

    @overload
    async def ask(
        self,
        messages: Messages | None = None,
        *,
        images: Media | Sequence[Media] = (),
        audio: Media | None = None,
        on_token: Callable[[str], Any] | None = None,
        on_sentence: Callable[[str], Any] | None = None,
        on_complete: Callable[[Answer], Any] | None = None,
        on_replaced: Callable[[str], Any] | None = None,
        allow_fallback: bool = False,
        into: type[T],
        **options: Unpack[Options],
    ) -> Answer[T]: ...

    async def ask(
        self,
        messages: Messages | None = None,
        *,
        images: Media | Sequence[Media] = (),
        audio: Media | None = None,
        on_token: Callable[[str], Any] | None = None,
        on_sentence: Callable[[str], Any] | None = None,
        on_complete: Callable[[Answer], Any] | None = None,
        on_replaced: Callable[[str], Any] | None = None,
        allow_fallback: bool = False,
        into: Any = None,
        **options: Unpack[Options],
    ) -> Answer[Any]:
        """Ask, and return the whole answer. Callbacks are functions or coroutine functions, called in order.

        `on_replaced` gets a text that replaces all text before it, with `repair` or
        `cascade_at_once`; tokens and sentences go on from there. Raises `DeadlineExceeded` when no model answers in
        time; with `allow_fallback` the gateway's fixed text is returned, and `Answer.is_fallback` is true.

        `into` is a dataclass or a pydantic model: the answer is JSON of that type, and `Answer.parsed` its value. An
        answer that was cut, or does not match, raises (`FORM_CUT`, `FORM_BROKEN`).
        """
        refuse_unknown("ask()", options, METHODS)
        options = with_schema(into, options) if into is not None else options
        callbacks, answer = Callbacks(on_token, on_sentence, on_complete, on_replaced), None
        stream = self.stream(messages, images=images, audio=audio, allow_fallback=allow_fallback, **options)
        async with stream:
            async for event in stream:
                if isinstance(event, Final):
                    answer = event.answer
                await settle(callbacks.notify(event))
        assert answer is not None  # a stream without a final event raises
        return parsed(answer, into) if into is not None else answer

    async def run_tools(
        self,
        messages: Messages,
        *,
        max_steps: int = 2,
        on_call: Callable[[ToolCall, Any], Any] | None = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Ask, call the functions that the model wants called, and ask again, until it answers.

        `tools` are functions: they are described to the model by their types and docstrings, and called in the order of
        its calls. Results go back to the model as JSON; exceptions are raised. Arguments that do not match the
        types go back to the model as an error. `tool_choice` is for the first question alone. After `max_steps` rounds
        of calls the model must answer. `budget_ms` is for all of it. `on_call` gets each call and its result.
        """
        refuse_unknown("run_tools()", options, METHODS)
        budget_ms = options.get("budget_ms") or self._caller.default_budget_ms
        loop = ToolLoop(messages, options.get("tools", ()), max_steps, budget_ms)
        while True:
            asked: Any = {**options, **loop.next_request(options.get("tool_choice"))}
            answer: Answer = await self.ask(**asked)
            calls = loop.calls(answer)
            for call in calls:
                result = await value_of(loop.prepared(call)())
                loop.note(call, result)
                if on_call:
                    await value_of(on_call(call, result))
            if not calls:
                return answer

    async def batch(
        self,
        requests: Iterable[Messages | Request],
        *,
        images: Media | Sequence[Media] = (),
        audio: Media | None = None,
        allow_fallback: bool = False,
        **options: Unpack[Options],
    ) -> AsyncIterator[tuple[int, Answer | HedgerowError]]:
        """Ask several at once; yields (position, result) as each is done. An item's own fields overrule the others.

        An item without an answer in time is a `DeadlineExceeded`, or with `allow_fallback` the gateway's fixed text.
        """
        out = self._caller.batch(requests, {"messages": None, "images": images, "audio": audio, **options})
        incoming = IncomingBatch(out.request.requests, allow_fallback=allow_fallback)
        call = self._stub.GenerateBatch(out.request, timeout=out.timeout_s, metadata=out.metadata)
        try:
            async for message in call:
                yield incoming.result(message)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._peer, out.timeout_s) from error
        except BaseException:
            broken_off(call)
        finally:
            call.cancel()
        incoming.ended()

    async def tools(self, timeout_s: float = 5.0) -> tuple[tuple[ListedTool, ...], tuple[ToolSource, ...]]:
        """The tools of the mesh that this caller may use, and where they come from."""
        request = gateway_pb2.ListToolsRequest()
        listed = await self._call(self._stub.ListTools, request, timeout_s)
        return _convert.tools(listed), _convert.tool_sources(listed)

    async def report_wrong(self, answer: Answer | str, question: str | None = None, timeout_s: float = 5.0) -> bool:
        """Say that an answer of the cache's was wrong for what was asked: it is not given to that any more.

        `answer` may be its key, `answer.cache.key`. `question` is the text of the last message that was asked; without
        it nothing but the entry's very own question gets that answer again. Returns whether this caller has such an
        entry.
        """
        key = answer if isinstance(answer, str) else answer.cache.key
        request = gateway_pb2.ReportWrongRequest(key=key, question=question)
        reply: gateway_pb2.ReportWrongResponse = await self._call(self._stub.ReportWrong, request, timeout_s)
        return reply.tightened

    def converse(
        self,
        audio: AsyncIterable[bytes],
        *,
        format: AudioFormat = AudioFormat(),  # noqa: B008  # frozen
        pause_ms: int | None = None,
        messages: Messages | None = None,
        images: Media | Sequence[Media] = (),
        allow_fallback: bool = False,
        **options: Unpack[Options],
    ) -> AsyncConversation:
        """Speak, and iterate over what happens: `(turn, event)`.

        Each time the speaker pauses (for `pause_ms`, 100 to 5,000), what was said is answered like a question, with
        `images`, `options` and the turns before it; `messages` come before the first. `audio` gives blocks of any
        length as they are recorded, in `format`, and is read in a task of its own. When it ends, the last answer is
        finished. A turn that no model answers in time is a `TurnFailed`, or with `allow_fallback` the gateway's fixed
        text.
        """
        asked: Request = {"messages": messages, "images": images, "audio": None, **options}
        opening = self._caller.converse(asked, format, pause_ms)
        requests, incoming = _spoken(opening, audio, format), IncomingTurns(self._peer, allow_fallback=allow_fallback)
        return AsyncConversation.begin(self._stub.Converse, requests, incoming, self._peer.metadata())


class AsyncConversation(AsyncDuplexStream[tuple[int, ConversationEvent]]):
    """A conversation as it goes: `async for turn, event in conversation`.

    Leaving `async with`, `cancel()` or letting go of the object ends the call at once, and with it the engines.
    """

    async def interrupt(self) -> bool:
        """Cut off the answer that is being given, as speaking would; may be called from another task.

        False when it cannot be said any more, because the audio or the conversation is over: `cancel()` still ends it.
        """
        return await self._send(INTERRUPT)


def _begin(stub: Any, out: Outgoing[GenerateRequest]) -> Any:
    return stub.Generate(out.request, timeout=out.timeout_s, metadata=out.metadata)


async def _spoken(
    opening: gateway_pb2.ConverseRequest, audio: AsyncIterable[bytes], form: AudioFormat
) -> AsyncGenerator[gateway_pb2.ConverseRequest, None]:
    """The messages of a conversation, to the gateway."""
    yield opening
    async for block in audio:
        for part in live_blocks(block, form):
            yield gateway_pb2.ConverseRequest(audio=part)
