"""The record of verified hits that replicas share in Redis: each replica adds its new samples, and continues from the
sum.

Samples of the same lookups are samples of the same traffic, whichever replica drew them. An addition whose reply is
lost is not repeated and may be lost, too: samples that count twice would make bounds too tight.

One hash holds all records of a tenant, so that removing the tenant removes its categories, also by a replica of a
version that knows no categories. The fields of a category are prefixed with its name; such versions use the fields
without a prefix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.cache.redis_entries import is_refused
from services.cache.redis_scripts import NOW_MS, TOMBSTONES, VERIFIED, WATERMARK
from services.cache.semantic_match.record import SAMPLE_BYTES, SAMPLES, Record, SampleCounts
from services.cache.semantic_match.records import RECORDS
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import EVERYONE, Traffic

if TYPE_CHECKING:
    from redis.asyncio import Redis

_KEPT_MS = 30 * 24 * 60 * 60 * 1000  # without news
_AT_ONCE = 100  # records, of 10 KB each
_FIELDS = (
    "samples", "lookups", "candidates", "recent_lookups", "recent_candidates", "threshold", "certified", "alarmed",
    "max_wrong",
)  # fmt: skip
_AT = "at"  # when there was news, in Unix milliseconds; older versions write none

# ARGV: made by, tenant, epoch, how long to keep it (ms), most records, most bytes of samples, samples, what
# is left of each share's counts, lookups and candidates of each, threshold, certified, alarmed, max wrong,
# the prefix of the fields. A new record may take the place of an old one: of the tenant that has most of them the
# one without news for longest, and where several have as many, of the tenant without news for longest.
# Returns the sum as `_FIELDS` has it; nothing where the tenant was removed after the epoch, or it was what made room.
ADD = f"""{NOW_MS}
local index, tenant, epoch, before = '{VERIFIED}' .. ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[18]
local now = now_ms()
local function hash(tenant) return index .. ':' .. tenant end
local key = hash(tenant)
if tonumber(redis.call('ZSCORE', '{TOMBSTONES}', 't:' .. tenant) or '0') > epoch
  or tonumber(redis.call('GET', '{WATERMARK}') or '0') > epoch then return {{}} end
local function records(tenant) return math.ceil(redis.call('HLEN', hash(tenant)) / {len(_FIELDS) + 1}) end
local function drop_one(tenant)
  local first, first_at = '', math.huge
  for _, field in ipairs(redis.call('HKEYS', hash(tenant))) do
    local name = string.match(field, '^(.*)samples$')
    local at = name and tonumber(redis.call('HGET', hash(tenant), name .. '{_AT}') or '0') or math.huge
    if at < first_at then first, first_at = name, at end
  end
  for _, field in ipairs({{{", ".join(f"'{field}'" for field in (*_FIELDS, _AT))}}}) do
    redis.call('HDEL', hash(tenant), first .. field)
  end
  if redis.call('EXISTS', hash(tenant)) == 0 then redis.call('ZREM', index, tenant) end
end
local function make_room(most)
  local total, fullest, held = 0, nil, 0
  for _, each in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    local count = records(each)
    total = total + count
    if count > held and each ~= '{EVERYONE.tenant}' then fullest, held = each, count end
  end
  for _ = 1, total - most do drop_one(fullest) end
end
local samples, is_new = redis.call('HGET', key, before .. 'samples'), false
if not samples then samples, is_new = '', true end
samples = samples .. ARGV[7]
if #samples > tonumber(ARGV[6]) then samples = string.sub(samples, math.floor(#samples / 4) * 2 + 1) end
redis.call('HSET', key, before .. 'samples', samples, before .. 'threshold', ARGV[14], before .. 'certified', ARGV[15],
  before .. 'alarmed', ARGV[16], before .. 'max_wrong', ARGV[17], before .. '{_AT}', now)
for place, field in ipairs({{'lookups', 'candidates', 'recent_lookups', 'recent_candidates'}}) do
  local left = ARGV[place < 3 and 8 or 9]
  local sum = (tonumber(redis.call('HGET', key, before .. field) or '0') or 0) * left + ARGV[9 + place]
  redis.call('HSET', key, before .. field, string.format('%.17g', sum))
end
redis.call('PEXPIRE', key, ARGV[4])
redis.call('ZADD', index, now, tenant)
redis.call('PEXPIRE', index, ARGV[4])
redis.call('ZADD', '{VERIFIED}', now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', '{VERIFIED}', '-inf', now - ARGV[4])
redis.call('ZREMRANGEBYSCORE', index, '-inf', now - ARGV[4])
if is_new then make_room(tonumber(ARGV[5])) end
if redis.call('HEXISTS', key, before .. 'samples') == 0 then return {{}} end
local sum = {{}}
for place, field in ipairs({{{", ".join(f"'{field}'" for field in _FIELDS)}}}) do sum[place] = before .. field end
return redis.call('HMGET', key, unpack(sum))
"""


@dataclass(slots=True)
class RedisVerified:
    """The storage in Redis of the records of `thresholds`."""

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
                pipeline.hgetall(self._key(tenant))
            for tenant, found in zip(some, await pipeline.execute(), strict=True):
                await self._resume(client, tenant, found)

    async def _resume(self, client: Any, tenant: str, found: Mapping[bytes, bytes]) -> None:
        for category, fields in _by_category(found):
            row = [fields.get(name) for name in _FIELDS]
            if not self.thresholds.resume(Traffic(tenant, category), row):
                await self._drop(client, Traffic(tenant, category))

    async def add(self, client: Redis, epoch: int) -> None:
        """Add what is new, as of what is known at `epoch`, and go on from the sum."""
        news = list(self.thresholds.news())
        for start in range(0, len(news), _AT_ONCE):
            some = news[start : start + _AT_ONCE]
            pipeline: Any = client.pipeline(transaction=False)
            for traffic, record in some:
                pipeline.eval(ADD, 0, *self._arguments(traffic, record, record.take(), epoch))
            for (traffic, record), row in zip(some, await pipeline.execute(raise_on_error=False), strict=True):
                if not is_refused(row) and row and not self.thresholds.resume(traffic, row, since=record):
                    await self._drop(client, traffic)

    def _arguments(self, traffic: Traffic, record: Record, new: SampleCounts, epoch: int) -> tuple[object, ...]:
        limits = (epoch, _KEPT_MS, RECORDS + 1, SAMPLES * SAMPLE_BYTES)  # + 1: the record of all tenants
        decision = record.decision
        came_of_it = (decision.threshold, int(decision.certified), int(decision.alarmed), record.max_wrong)
        added = (new.samples.tobytes(), *new.kept, *new.faded, *came_of_it)
        return (self.thresholds.made_by, traffic.tenant, *limits, *added, _before(traffic.category))

    async def _drop(self, client: Any, traffic: Traffic) -> None:
        """A record that cannot be read."""
        fields = [_before(traffic.category) + name for name in (*_FIELDS, _AT)]
        await client.hdel(self._key(traffic.tenant), *fields)

    @property
    def _index(self) -> str:
        return VERIFIED + self.thresholds.made_by

    def _key(self, tenant: str) -> str:
        return f"{self._index}:{tenant}"


def _before(category: str) -> str:
    """The prefix of the fields of a category."""
    return f"{category}:" if category else ""


def _by_category(found: Mapping[bytes, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The fields of each category in a tenant's hash, that with the latest news last."""
    categories: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    for name, value in found.items():
        category, _, field = name.decode(errors="replace").rpartition(":")
        categories[category][field] = value
    yield from sorted(categories.items(), key=lambda each: (len(each[1].get(_AT, b"")), each[1].get(_AT, b"")))
