"""The gateway's asyncio client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import grpc

from hedgerow import _convert
from hedgerow._answer_stream_aio import AsyncAnswerStream
from hedgerow._base_aio import AsyncServiceClient, reraise, run_callbacks, value_of
from hedgerow._chat_input import refuse_unknown
from hedgerow._conversation import INTERRUPT, IncomingTurns
from hedgerow._errors import HedgerowError
from hedgerow._events import Answer, Final
from hedgerow._fields import set_fields
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

    `target` is `host:port`, `unix:path` or `xds:///name`. `api_key` is sent as `authorization: Bearer …`.
    `default_budget_ms` is the budget of requests that name none; None: the gateway's default. Without `tls` the
    connection is plain text: an API key for another machine then raises `InvalidArgument`, unless
    `allow_plaintext_key` is set.
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
        """Send a question, and iterate over the events of its answer. Raises `InvalidArgument` for an invalid request.

        `images` and `audio` are the bytes of encoded files, or paths. Without messages, the recording `audio` is the
        question. If no model answers in time, the stream raises `DeadlineExceeded`; with `allow_fallback` it has the
        gateway's fixed text, and `Answer.is_fallback` is true.
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
        """Send a question, and return the whole answer.

        Callbacks are functions or coroutine functions, called in order. `on_replaced` gets a text that replaces all
        text before it (`repair`, `cascade_at_once`); later tokens and sentences follow that text. If no model answers
        in time, the call raises `DeadlineExceeded`; with `allow_fallback` it returns the gateway's fixed text, and
        `Answer.is_fallback` is true.

        `into` is a dataclass or a pydantic model: the answer is JSON of that type, and `Answer.parsed` its value. The
        call raises for an answer that was cut (`FORM_CUT`) or does not match (`FORM_BROKEN`).
        """
        refuse_unknown("ask()", options, METHODS)
        options = with_schema(into, options) if into is not None else options
        callbacks, answer = Callbacks(on_token, on_sentence, on_complete, on_replaced), None
        stream = self.stream(messages, images=images, audio=audio, allow_fallback=allow_fallback, **options)
        async with stream:
            async for event in stream:
                if isinstance(event, Final):
                    answer = event.answer
                await run_callbacks(callbacks.notify(event))
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
        """Send a question, run the model's tool calls, and send their results, until the model answers.

        `tools` are functions; their types and docstrings describe them to the model. The model gets each result as
        JSON, and an error for arguments that do not match the types. A function's exception is raised. `tool_choice`
        applies to the first question only. Later questions derive their `idempotency_key` from yours. After `max_steps`
        rounds of calls the model must answer. `budget_ms` covers all rounds. `on_call` gets each call and its result.
        """
        refuse_unknown("run_tools()", options, METHODS)
        budget_ms = options.get("budget_ms") or self._caller.default_budget_ms
        loop = ToolLoop(messages, options.get("tools") or (), max_steps, budget_ms)
        while True:
            asked: Any = {**options, **loop.next_request(options)}
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
        """Send several questions; yields (position, result) of each as it is done.

        An item's own fields take precedence. The result of an item without an answer in time is a
        `DeadlineExceeded`, or with `allow_fallback` the gateway's fixed text.
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
            reraise(call)
        finally:
            call.cancel()
        incoming.ended()

    async def tools(self, timeout_s: float = 5.0) -> tuple[tuple[ListedTool, ...], tuple[ToolSource, ...]]:
        """The mesh tools that this caller may use, and their sources."""
        request = gateway_pb2.ListToolsRequest()
        listed = await self._call(self._stub.ListTools, request, timeout_s)
        return _convert.tools(listed), _convert.tool_sources(listed)

    async def report_wrong(self, answer: Answer | str, question: str | None = None, timeout_s: float = 5.0) -> bool:
        """Report that a stored answer was wrong for a question: the question does not get that answer again.

        `answer` may be the entry's key, `answer.cache.key`. `question` is the text of the last message; without it only
        the entry's own question gets that answer again. Returns whether this caller has such an entry.
        """
        key = answer if isinstance(answer, str) else answer.cache.key
        request = gateway_pb2.ReportWrongRequest()
        set_fields(request, "", key=key, question=question)
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
        """Send live speech, and iterate over the events of its answers: `(turn, event)`.

        Each pause of the speaker (of `pause_ms`, 100 to 5,000) ends a turn, which is answered like a question, with
        `images`, `options` and the turns before it; `messages` precede the first turn. `audio` yields blocks of any
        length as they are recorded, in `format`, and is read in a task of its own. When it ends, the last answer is
        finished. A turn that no model answers in time is a `TurnFailed`, or with `allow_fallback` the gateway's fixed
        text.
        """
        asked: Request = {"messages": messages, "images": images, "audio": None, **options}
        opening = self._caller.converse(asked, format, pause_ms)
        requests, incoming = _spoken(opening, audio, format), IncomingTurns(self._peer, allow_fallback=allow_fallback)
        return AsyncConversation.begin(self._stub.Converse, requests, incoming, self._peer.metadata())


class AsyncConversation(AsyncDuplexStream[tuple[int, ConversationEvent]]):
    """The events of a conversation: `async for turn, event in conversation`.

    Leaving `async with`, `cancel()`, or deleting the object ends the call, and stops the engines.
    """

    async def interrupt(self) -> bool:
        """End the current answer, as speech would; may be called from another task.

        False after the end of the audio or the conversation: `cancel()` still ends the call.
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
