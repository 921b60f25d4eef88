"""Admission control: a stream too many is refused, so that the open ones never fall behind.

A stream needs a share of the model's time while its speaker speaks: the cost of a piece of work over the longest time
between two. The cost is estimated by a warm-up and then follows what pieces cost. A silent stream counts like one with
speech, because speech may begin at any moment. Two measurements count too: the load that streams cause now, and whether
any of them is behind.

When there is no permit left, tenants share the permits evenly: for a tenant within its share, the tenant with the most
streams loses the one that has been silent for the longest, and the one with the most recordings its latest. A tenant
that has all permits therefore keeps no other tenant out; while it is alone it may have them all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from services.audio.errors import GaveWay, RecordingsFull, StreamsFull
from services.audio.metrics import BEHIND, GAVE_WAY, OPEN, REFUSED
from services.audio.scheduler import FairMember, TranscriptionScheduler
from services.runtime.deadline import Clock

MAX_BEHIND_S = 1.0  # of any stream, for another to be let in
_BEHIND_FOR_S = 2.0  # a stream that is behind says so every second
_SMOOTHING = 0.1  # of what a piece of work costs: the last ten or so
_RETRY_S = 1.0


@dataclass(eq=False, slots=True)
class Stream:
    """An open stream. `end` ends it, with a reason."""

    member: FairMember
    policy: str
    tenant: str
    end: Callable[[Exception], None]
    spoke_at: float  # when speech was heard last; until then, when it was opened
    behind_at: float = float("-inf")


@dataclass(eq=False, slots=True)
class Recording:
    """A recording in work."""

    member: FairMember
    tenant: str
    began: float

    def end(self, reason: Exception) -> None:
        """End it before its next piece of work."""
        self.member.error = reason


S = TypeVar("S", Stream, Recording)


class Need:
    """How much of a worker a stream needs while its speaker speaks: the cost of a piece of work, over the longest time
    from one to the next at which the stream is still on time.

    The cost is an estimate of the start, which follows what pieces really cost. The time between pieces is no
    measurement: a stream that is alone takes more than it needs."""

    def __init__(self, cost_s: float, every_s: float):
        self._cost_s, self._every_s = cost_s, every_s

    @property
    def share(self) -> float:
        return self._cost_s / self._every_s

    def add(self, cost_s: float) -> None:
        """A piece of work has taken so long."""
        self._cost_s += (cost_s - self._cost_s) * _SMOOTHING


class Admission:
    """Admission control. `needs`: what a stream of each policy needs to begin with."""

    def __init__(
        self,
        scheduler: TranscriptionScheduler,
        needs: dict[str, Need],
        max_streams: int,
        max_recordings: int,
        max_load: float,
        workers: int = 1,
        clock: Clock = time.monotonic,
    ):
        self._scheduler, self._needs, self._clock = scheduler, needs, clock
        self._max_recordings, self._max_load, self._workers = max_recordings, max_load, workers
        self.max_streams = max_streams
        self._streams: set[Stream] = set()
        self._recordings: set[Recording] = set()

    @property
    def streams(self) -> int:
        """Open now."""
        return len(self._streams)

    @contextmanager
    def stream(
        self, policy: str, tenant: str = "", end: Callable[[Exception], None] = lambda _: None
    ) -> Iterator[Stream]:
        """A slot for a stream, which may be ended with `GaveWay`. Raises StreamsFull, which names the limit and the
        value."""
        try:
            self._check(policy)
        except StreamsFull as full:
            if not self._preempt_for(tenant, self._streams, lambda stream: stream.spoke_at):
                REFUSED.labels("stream", full.metadata["why"]).inc()
                raise
        stream = Stream(FairMember(live=True), policy, tenant, end, self._clock())
        self._streams.add(stream)
        try:
            with OPEN.labels("stream").track_inprogress():
                yield stream
        finally:
            self._streams.discard(stream)

    @contextmanager
    def recording(self, tenant: str = "") -> Iterator[FairMember]:
        """A slot for a recording, which may be ended with `GaveWay`. Raises RecordingsFull."""
        full = len(self._recordings) >= self._max_recordings
        if full and not self._preempt_for(tenant, self._recordings, lambda recording: -recording.began):
            REFUSED.labels("recording", "count").inc()
            raise RecordingsFull(
                f"recordings: at most {self._max_recordings} at once, got one more",
                retry_delay_s=_RETRY_S,
                limit=str(self._max_recordings),
            )
        member = FairMember(live=False, name=tenant) if tenant else FairMember(live=False)
        self._recordings.add(recording := Recording(member, tenant, self._clock()))
        try:
            with OPEN.labels("recording").track_inprogress():
                yield member
        finally:
            self._recordings.discard(recording)

    def worked(self, stream: Stream, took_s: float) -> None:
        """The model worked `took_s` for a stream."""
        self._needs[stream.policy].add(took_s)

    def spoke(self, stream: Stream) -> None:
        """Speech was heard."""
        stream.spoke_at = self._clock()

    def behind(self, stream: Stream, behind_s: float) -> None:
        """A stream was notified that it is behind."""
        BEHIND.inc()
        if behind_s > MAX_BEHIND_S:
            stream.behind_at = self._clock()

    def _check(self, policy: str) -> None:
        if not self._streams:  # a stream that is alone slows down no other one
            return
        if len(self._streams) >= self.max_streams:
            raise self._full("count", f"streams: at most {self.max_streams}, got one more", f"{self.max_streams}")
        needed = sum(self._needs[stream.policy].share for stream in self._streams) + self._needs[policy].share
        needed, load = needed / self._workers, self._scheduler.load(streams_only=True)
        if max(needed, load) > self._max_load:
            share = f"{max(needed, load):.2f}"
            what = f"load: at most {self._max_load:g} of the model's time, got {share} with one more stream"
            raise self._full("load", what, f"{self._max_load:g}", value=share)
        late = [stream for stream in self._streams if self._clock() - stream.behind_at < _BEHIND_FOR_S]
        if late:
            what = f"streams behind by more than {MAX_BEHIND_S:g} s: none, got {len(late)}"
            raise self._full("behind", what, "0", value=str(len(late)))

    def _preempt_for(self, tenant: str, held: set[S], last: Callable[[S], float]) -> bool:
        """End one of a tenant with more than its share, for one of `tenant`: the one that is the least by `last`. False
        if there is none."""
        counts = Counter(each.tenant for each in held)
        share = len(held) / len(counts.keys() | {tenant})
        most = max(counts.values(), default=0)
        if counts[tenant] + 1 > share or most <= share:
            return False
        ended = min((each for each in held if counts[each.tenant] == most), key=last)
        held.discard(ended)
        GAVE_WAY.inc()
        kind = ended.member.kind
        what = f"{kind}s: an even share of {len(counts.keys() | {tenant})} tenants is {share:.1f}, got {most}"
        ended.end(
            GaveWay(f"{what}; this {kind} was preempted", retry_delay_s=_RETRY_S, limit=f"{share:.1f}", value=str(most))
        )
        return True

    def _full(self, why: str, message: str, limit: str, **metadata: str) -> StreamsFull:
        return StreamsFull(message, retry_delay_s=_RETRY_S, why=why, limit=limit, **metadata)
