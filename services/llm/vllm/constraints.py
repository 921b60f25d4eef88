"""What constraints cost, kept within bounds: each new one is tried out first (`grammar_sandbox.py`), one at a time,
tenants in turn. What it takes to make is remembered, and charged to the tenant at every request: the engine makes it
again each time.

A tenant that has used its share gets an error with a delay, and others go on: no tenant's grammars hold up the rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from services.llm.config import ConstraintSettings
from services.llm.engine import Constraint
from services.llm.errors import EngineDown
from services.llm.vllm import grammar_sandbox
from services.llm.vllm.grammar_sandbox import GrammarVerdict, Terms
from services.llm.vllm.params import refused
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import ShareUsed, TooLate
from services.runtime.policy.bucket import TokenBucket
from services.runtime.policy.fair_lru import FairLru
from services.runtime.policy.fair_slots import FairTurns

_REMEMBERED = 4_096  # constraints: a digest and a verdict each
_TENANTS = 4_096
_RETRY_S = 0.5  # where a tenant has as many under way as it may
_ANSWER_BYTES = 64 * 1024
_LONGEST_S = 30.0  # for a trial that has a fraction of a second, or for its process to start


@dataclass(frozen=True, slots=True)
class _KnownVerdict:
    tenant: str
    verdict: GrammarVerdict
    size: int = 1  # only their number is limited


class Constraints:
    """Says of a constraint whether the engine may have it. Nothing is shared between tenants, or one could find from
    the time it takes what another has asked."""

    def __init__(self, settings: ConstraintSettings, trial: Trial, clock: Clock = time.monotonic):
        self._settings, self._trial, self._clock = settings, trial, clock
        self._scheduler = TrialScheduler(settings.in_hand)
        self._known: FairLru[bytes, _KnownVerdict] = FairLru(sys.maxsize, _REMEMBERED)
        self._allowances: OrderedDict[str, TokenBucket] = OrderedDict()
        self._trying: dict[bytes, asyncio.Task[GrammarVerdict]] = {}

    async def check(self, constraint: Constraint, tenant: str, deadline: Deadline) -> None:
        """Raise `InvalidInput` for one that the engine cannot follow or that would hold it up, `ShareUsed` where the
        tenant has had as many as it may, `TooLate`."""
        key = hashlib.sha256("\0".join((tenant, constraint.kind, constraint.value)).encode()).digest()
        known = self._known.get(key)
        allowance = self._allowance(tenant)
        if known is None:
            if allowance.level() <= 0:
                raise _used_up(allowance, self._settings.cpu_ms / 1000)
            verdict = await self._tried(key, constraint, tenant, deadline)
        else:
            self._known.use(key)
            verdict = known.verdict
            cost_s = min(verdict.cpu_s, allowance.burst)
            if not verdict.refused and not allowance.take(cost_s):
                raise _used_up(allowance, cost_s)
        if verdict.refused:
            raise refused(constraint, verdict.refused)

    async def close(self) -> None:
        """End all waits."""
        for task in self._trying.values():
            task.cancel()
        await asyncio.gather(*self._trying.values(), return_exceptions=True)
        await self._trial.close()

    async def _tried(self, key: bytes, constraint: Constraint, tenant: str, deadline: Deadline) -> GrammarVerdict:
        """A trial for all callers of the same constraint, which continues after they leave, because they may retry."""
        task = self._trying.get(key)
        if task is None:
            task = self._trying[key] = asyncio.create_task(self._try(key, constraint, tenant))
            task.add_done_callback(lambda task: self._done(key, task))
        left_s = deadline.remaining()
        try:
            async with asyncio.timeout(left_s if math.isfinite(left_s) else None):
                return await asyncio.shield(task)
        except TimeoutError:
            raise TooLate("response_format: the deadline passed before the constraint was tried") from None

    async def _try(self, key: bytes, constraint: Constraint, tenant: str) -> GrammarVerdict:
        async with self._scheduler.turn(tenant):
            verdict = await self._trial.of(constraint)
        self._known.replace(key, _KnownVerdict(tenant, verdict))
        self._allowance(tenant).force(verdict.spent_s + (0 if verdict.refused else verdict.cpu_s))
        return verdict

    def _done(self, key: bytes, task: asyncio.Task[GrammarVerdict]) -> None:
        del self._trying[key]
        if not task.cancelled():
            task.exception()  # no caller may be left to retrieve it

    def _allowance(self, tenant: str) -> TokenBucket:
        """The processor time that a tenant's constraints may take, in seconds."""
        allowance = self._allowances.pop(tenant, None)
        if allowance is None:
            allowance = TokenBucket(self._settings.share, self._settings.burst_ms / 1000, self._clock)
        self._allowances[tenant] = allowance
        while len(self._allowances) > _TENANTS:
            self._allowances.popitem(last=False)
        return allowance


def _used_up(allowance: TokenBucket, cost_s: float) -> ShareUsed:
    delay_s = allowance.wait_s(min(cost_s, allowance.burst))
    return ShareUsed("response_format: this tenant's share of the time for new ones is used up", retry_delay_s=delay_s)


class TrialScheduler:
    """Runs one trial at a time, tenants in turn. A tenant may have `most` trials, the running one included."""

    def __init__(self, most: int):
        self._most, self._inside = most, Counter[str]()
        self._turns = FairTurns()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Inside it is `tenant`'s turn. Raises `ShareUsed` where it has as many inside as it may."""
        if self._inside[tenant] >= self._most:
            raise ShareUsed(
                f"response_format: at most {self._most} new ones at once, got one more", retry_delay_s=_RETRY_S
            )
        self._inside[tenant] += 1
        try:
            await self._turns.begin(tenant)
            try:
                yield
            finally:
                self._turns.ended()
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant]


class Trial:
    """The process that tries. Started when it is first needed, and again when it has died."""

    def __init__(self, terms: Callable[[], Terms]):
        self._terms = terms
        self._process: subprocess.Popen[bytes] | None = None

    async def of(self, constraint: Constraint) -> GrammarVerdict:
        """Try one; by one caller at a time. Raises `EngineDown`."""
        schema = constraint.value if constraint.kind != "json_object" else '{"type": "object"}'
        question = {"kind": "json_schema" if constraint.kind == "json_object" else constraint.kind, "value": schema}
        try:
            async with asyncio.timeout(_LONGEST_S):
                if self._process is None:
                    await self._start()
                return GrammarVerdict(**json.loads(await self._asked(question)))
        except (OSError, ValueError, asyncio.CancelledError) as error:
            await self.close()  # its next answer belongs to no caller
            if isinstance(error, asyncio.CancelledError):
                raise
            raise EngineDown("the trial of constraints broke off") from None

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._writer.close()
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _start(self) -> None:
        process, ours = _launched()
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_ANSWER_BYTES)
        except BaseException:
            ours.close()
            process.kill()
            process.wait()
            raise
        self._process = process
        if not await self._asked(asdict(self._terms())):
            raise ValueError("it ended at once")

    async def _asked(self, question: Mapping[str, object]) -> bytes:
        """The line that answers a line; empty when there is none any more."""
        self._writer.write(json.dumps(question).encode() + b"\n")
        await self._writer.drain()
        return await self._reader.readline()


def _launched() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A process that tries, and the way to it. Not asyncio's: uvloop would fork, with gRPC's threads running."""
    ours, its = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with its:
        end = its.fileno()
        command = [sys.executable, "-m", grammar_sandbox.__name__]
        return subprocess.Popen(command, stdin=end, stdout=end, stderr=subprocess.DEVNULL, env=environment), ours
