"""What was verified of each tenant, as replicas share it in Redis: each adds what is new, and goes on from the sum.

Samples of one tenant's lookups are samples of the same traffic, whichever replica drew them. An addition whose reply is
lost is not repeated and may be lost, too: samples that count twice would make bounds too tight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.cache.redis_scripts import TOMBSTONES, VERIFIED, WATERMARK
from services.cache.verdict.record import SAMPLE_BYTES, SAMPLES, Counts, Record
from services.cache.verdict.thresholds import TENANTS, Thresholds

if TYPE_CHECKING:
    from redis.asyncio import Redis

_KEPT_MS = 30 * 24 * 60 * 60 * 1000  # without news
_AT_ONCE = 100  # tenants, of 10 KB each
_FIELDS = (
    "samples", "lookups", "candidates", "recent_lookups", "recent_candidates", "threshold", "certified", "alarmed",
)  # fmt: skip

# ARGV: made by, tenant, epoch, now (ms), how long to keep it (ms), most tenants, most bytes of samples, samples, what
# is left of each share's counts, lookups and candidates of each, threshold, certified, alarmed.
# Returns the sum as `_FIELDS` has it; nothing where the tenant was removed after the epoch.
ADD = f"""
local index, tenant, epoch = '{VERIFIED}' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local key = index .. ':' .. tenant
if tonumber(redis.call('ZSCORE', '{TOMBSTONES}', 't:' .. tenant) or '0') > epoch
  or tonumber(redis.call('GET', '{WATERMARK}') or '0') > epoch then return {{}} end
local samples = (redis.call('HGET', key, 'samples') or '') .. ARGV[8]
if #samples > tonumber(ARGV[7]) then samples = string.sub(samples, math.floor(#samples / 4) * 2 + 1) end
redis.call('HSET', key, 'samples', samples, 'threshold', ARGV[15], 'certified', ARGV[16], 'alarmed', ARGV[17])
for place, field in ipairs({{'lookups', 'candidates', 'recent_lookups', 'recent_candidates'}}) do
  local left = ARGV[place < 3 and 9 or 10]
  local sum = (tonumber(redis.call('HGET', key, field) or '0') or 0) * left + ARGV[10 + place]
  redis.call('HSET', key, field, string.format('%.17g', sum))
end
redis.call('PEXPIRE', key, ARGV[5])
redis.call('ZADD', index, ARGV[4], tenant)
redis.call('PEXPIRE', index, ARGV[5])
redis.call('ZADD', '{VERIFIED}', ARGV[4], ARGV[1])
redis.call('ZREMRANGEBYSCORE', '{VERIFIED}', '-inf', ARGV[4] - ARGV[5])
while redis.call('ZCARD', index) > tonumber(ARGV[6]) do
  redis.call('UNLINK', index .. ':' .. redis.call('ZPOPMIN', index)[1])
end
return redis.call('HMGET', key, {", ".join(f"'{field}'" for field in _FIELDS)})
"""


@dataclass(slots=True)
class RedisVerified:
    """Of the records that `thresholds` keeps."""

    thresholds: Thresholds

    async def load(self, client: Redis) -> None:
        """Go on from what is shared, and from nothing else."""
        self.thresholds.forget()
        if not self.thresholds.made_by:
            return
        index: Any = client
        tenants = [name.decode(errors="replace") for name in await index.zrange(self._index, 0, -1)]
        for start in range(0, len(tenants), _AT_ONCE):
            some = tenants[start : start + _AT_ONCE]
            pipeline: Any = client.pipeline(transaction=False)
            for tenant in some:
                pipeline.hmget(self._key(tenant), _FIELDS)
            for tenant, row in zip(some, await pipeline.execute(), strict=True):
                if row[0] is not None and not self.thresholds.resume(tenant, row):
                    await client.unlink(self._key(tenant))

    async def add(self, client: Redis, epoch: int, now_ms: int) -> None:
        """Add what is new, as of what is known at `epoch`, and go on from the sum."""
        news = list(self.thresholds.news())
        for start in range(0, len(news), _AT_ONCE):
            some = news[start : start + _AT_ONCE]
            pipeline: Any = client.pipeline(transaction=False)
            for tenant, record in some:
                pipeline.eval(ADD, 0, *self._arguments(tenant, record, record.take(), epoch, now_ms))
            for (tenant, record), row in zip(some, await pipeline.execute(), strict=True):
                if row and not self.thresholds.resume(tenant, row, since=record):
                    await client.unlink(self._key(tenant))

    def _arguments(self, tenant: str, record: Record, new: Counts, epoch: int, now_ms: int) -> tuple[object, ...]:
        limits = (epoch, now_ms, _KEPT_MS, TENANTS + 1, SAMPLES * SAMPLE_BYTES)  # one of them is everyone
        came_of_it = (record.threshold, int(record.certified), int(record.alarmed))
        return (self.thresholds.made_by, tenant, *limits, new.samples.tobytes(), *new.kept, *new.faded, *came_of_it)

    @property
    def _index(self) -> str:
        return VERIFIED + self.thresholds.made_by

    def _key(self, tenant: str) -> str:
        return f"{self._index}:{tenant}"
