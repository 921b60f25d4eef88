"""The record of verified hits that replicas share in Redis: each replica adds its new samples, and continues from the
sum.

Samples of the same lookups are samples of the same traffic, whichever replica drew them. An addition whose reply is
lost is not repeated and may be lost, too: samples that count twice would make bounds too tight.

One hash holds all records of a tenant, so that removing the tenant removes its categories, also by a replica of a
version that knows no categories. The fields of a category are prefixed with its name; such versions use the fields
without a prefix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from services.cache.redis_scripts import NOW_MS, TOMBSTONES, VERIFIED, WATERMARK
from services.cache.semantic_match.record import RECORDS, SAMPLE_BYTES, SAMPLES, Record, SampleCounts
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import EVERYONE, Traffic
from services.cache.snapshot import Ask, parts
from services.runtime.shared_state import is_refused

if TYPE_CHECKING:
    from redis.asyncio import Redis

_KEPT_MS = 30 * 24 * 60 * 60 * 1000  # without news
_TENANTS, _RECORDS = 100, 20  # in one call, which has little time; a record has 10 KB
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

    async def load(self, ask: Ask[Any]) -> None:
        """Go on from what is shared, and from nothing else. Earlier records hold until all of that is read."""
        tenants = await ask(self._tenants) if self.thresholds.made_by else []
        traffic = [one for some in parts(tenants, _TENANTS) for one in await ask(partial(self._traffic, tenants=some))]
        rows = [row for some in parts(traffic, _RECORDS) for row in await ask(partial(self._rows, traffic=some))]
        self.thresholds.forget()
        damaged = list[Traffic]()
        for one, (_, *row) in sorted(zip(traffic, rows, strict=True), key=_by_news):
            if not self.thresholds.resume(one, row):
                damaged.append(one)
            await asyncio.sleep(0)  # a large record takes a millisecond
        for one in damaged:
            await ask(partial(self._drop, traffic=one))

    async def add(self, ask: Ask[Any], epoch: int) -> None:
        """Add what is new, as of what is known at `epoch`, and go on from the sum."""
        for some in parts(list(self.thresholds.news()), _RECORDS):
            rows = await ask(partial(self._add, news=some, epoch=epoch))
            for (traffic, record), row in zip(some, rows, strict=True):
                if not is_refused(row) and row and not self.thresholds.resume(traffic, row, since=record):
                    await ask(partial(self._drop, traffic=traffic))
                await asyncio.sleep(0)

    def _arguments(self, traffic: Traffic, record: Record, new: SampleCounts, epoch: int) -> tuple[object, ...]:
        limits = (epoch, _KEPT_MS, RECORDS + 1, SAMPLES * SAMPLE_BYTES)  # + 1: the record of all tenants
        decision = record.decision
        came_of_it = (decision.threshold, int(decision.certified), int(decision.alarmed), record.max_wrong)
        added = (new.samples.tobytes(), *new.kept, *new.faded, *came_of_it)
        return (self.thresholds.made_by, traffic.tenant, *limits, *added, _before(traffic.category))

    async def _tenants(self, client: Redis) -> list[str]:
        """The tenants with records."""
        index: Any = client
        return [name.decode(errors="replace") for name in await index.zrange(self._index, 0, -1)]

    async def _traffic(self, client: Redis, tenants: Sequence[str]) -> list[Traffic]:
        """The tenants' traffic that has records."""
        pipeline: Any = client.pipeline(transaction=False)
        for tenant in tenants:
            pipeline.hkeys(self._key(tenant))
        found = dict(zip(tenants, await pipeline.execute(), strict=True))
        return [Traffic(tenant, each) for tenant, names in found.items() for each in set(map(_category, names))]

    async def _rows(self, client: Redis, traffic: Sequence[Traffic]) -> list[list[bytes | None]]:
        """When there was news of each record, and its fields."""
        pipeline: Any = client.pipeline(transaction=False)
        for one in traffic:
            pipeline.hmget(self._key(one.tenant), [_before(one.category) + name for name in (_AT, *_FIELDS)])
        return list(await pipeline.execute())

    async def _add(self, client: Redis, news: Sequence[tuple[Traffic, Record]], epoch: int) -> list[Any]:
        """Send what is new in records, and return their sums."""
        pipeline: Any = client.pipeline(transaction=False)
        for traffic, record in news:
            pipeline.eval(ADD, 0, *self._arguments(traffic, record, record.take(), epoch))
        return list(await pipeline.execute(raise_on_error=False))

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


def _category(name: bytes) -> str:
    """The category that a field is of."""
    return name.decode(errors="replace").rpartition(":")[0]


def _by_news(record: tuple[Traffic, Sequence[bytes | None]]) -> tuple[int, bytes]:
    """A key by which the record with the latest news is the last one."""
    at = record[1][0] or b""
    return len(at), at
