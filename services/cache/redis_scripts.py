"""Changes of the shared entries, each in one script: an entry, what finds it and the news of it appear together.

Every change has a sequence number that only grows: Redis' time in microseconds, or one more than the last. In the
change stream a change names the one before it, so a follower sees a gap at once. Redis' time, and not a count, so that
the numbers of a Redis that lost its data are not used again.

A removal leaves a tombstone with its sequence number, as in `tombstones`. A put brings its epoch; a later tombstone
is a conflict, and so is an epoch below the watermark, that of the last tombstone given up or of the beginning. An epoch
above the last number is a conflict, too: it is of a Redis before this one, whose clock was ahead.

The sequence number is written first: a Redis that has no room left refuses that, and then nothing was done. A removal
and a verdict begin with a deletion, which such a Redis permits, and after it the other changes of the script.

Redis' own eviction knows no tenants, so it must not come to that: a put that makes the entries too large makes room as
`fair_lru` does, by bytes, in the order of `greedy_dual`. The stream does not report that: what replicas hold in memory
they may go on to serve.

Names in Redis are those of the first version, so that replicas of both can share one during an upgrade.
"""

from __future__ import annotations

from services.runtime.shared_state import PREFIX

_CACHE = f"{PREFIX}cache:"
ENTRY = f"{_CACHE}entry:"  # + key: a hash that ends with the entry
TENANT = f"{_CACHE}tenant:"  # + tenant: a sorted set of its keys by when they end, in Unix milliseconds
TENANTS = f"{_CACHE}tenants"  # a set of those that have such a set
USED = f"{_CACHE}used:"  # + tenant: a sorted set of its keys by their last use, in Unix milliseconds
WORTH = f"{_CACHE}worth:"  # + tenant: a sorted set of its keys by their priority, as `greedy_dual` has it
CLOCK = f"{_CACHE}clock"  # a hash of tenants' clocks, for their priorities
SIZES = f"{_CACHE}sizes:"  # + tenant: a hash of its keys' bytes
HELD = f"{_CACHE}held"  # a sorted set of tenants by the bytes of all their entries
BYTES = f"{_CACHE}bytes"  # of all entries
SEQUENCE = f"{_CACHE}position"  # the number of the last change
CHANGES = f"{_CACHE}changes"  # the change stream: each under its sequence number
# A sorted set of what was removed (`k:<key>`, `t:<tenant>`, or `k:<key>:<tenant>` for the key of this tenant alone) by
# the sequence number of its last removal.
TOMBSTONES = f"{_CACHE}gone"
# A sorted set of what made scores, by when there was news of it; with `<made by>` behind it, one of its tenants, alike;
# with `<made by>:<tenant>`, a hash of what was verified. See `redis_verified`.
VERIFIED = f"{_CACHE}verified:"
WATERMARK = f"{_CACHE}gone:floor"  # the highest number of a tombstone that was given up

# `now_ms`: Redis' own time, which ends the entries. By a replica's clock that runs ahead, an entry could lose what
# finds it and stay: a removal of its tenant would pass it over.
NOW_MS = """
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""
_COMMON = f"""{NOW_MS}
local function number(position) return string.format('%.0f', position) end
local function after(last)
  local time = redis.call('TIME')
  return number(math.max(last + 1, time[1] * 1000000 + time[2]))
end
local function begin()
  local last = redis.call('GET', '{SEQUENCE}')
  if not last then
    last = after(0)
    redis.call('SET', '{SEQUENCE}', last)
    redis.call('SET', '{WATERMARK}', last)
  end
  return last
end
local function announce(op, key, tenant, entries, max_changes)
  local last = tonumber(begin())
  local sequence = after(last)
  redis.call('SET', '{SEQUENCE}', sequence)
  redis.call('XADD', '{CHANGES}', 'MAXLEN', '~', max_changes, sequence .. '-0', 'before', number(last),
    'op', op, 'what', key, 'tenant', tenant, 'entries', entries,
    'origin', '', 'number', 0)  -- the first version reads these two
  return sequence
end
local function bury(member, sequence, max_tombstones)
  redis.call('ZADD', '{TOMBSTONES}', sequence, member)
  while redis.call('ZCARD', '{TOMBSTONES}') > tonumber(max_tombstones) do
    redis.call('SET', '{WATERMARK}', number(redis.call('ZPOPMIN', '{TOMBSTONES}')[2]))
  end
end
local function grow(tenant, bytes)
  redis.call('INCRBY', '{BYTES}', bytes)
  if tonumber(redis.call('ZINCRBY', '{HELD}', bytes, tenant)) <= 0 then redis.call('ZREM', '{HELD}', tenant) end
end
local function lose(tenant, keys)
  local index, bytes = '{TENANT}' .. tenant, 0
  for _, size in ipairs(redis.call('HMGET', '{SIZES}' .. tenant, unpack(keys))) do bytes = bytes + (size or 0) end
  redis.call('HDEL', '{SIZES}' .. tenant, unpack(keys))
  redis.call('ZREM', '{USED}' .. tenant, unpack(keys))
  redis.call('ZREM', '{WORTH}' .. tenant, unpack(keys))
  redis.call('ZREM', index, unpack(keys))
  grow(tenant, 0 - bytes)  -- Redis takes no -0
  if redis.call('EXISTS', index) == 0 then
    redis.call('SREM', '{TENANTS}', tenant)
    redis.call('HDEL', '{CLOCK}', tenant)
  end
end
local function use(tenant, key, times)
  local entry = '{ENTRY}' .. key
  local uses, worth = redis.call('HINCRBY', entry, 'uses', times), redis.call('HGET', entry, 'worth') or 0
  local priority = (redis.call('HGET', '{CLOCK}', tenant) or 0) + uses * worth
  redis.call('ZADD', '{WORTH}' .. tenant, string.format('%.17g', priority), key)
end
local function prune(tenant)
  local over = redis.call('ZRANGEBYSCORE', '{TENANT}' .. tenant, '-inf', now_ms(), 'LIMIT', 0, 1000)
  for _, key in ipairs(over) do redis.call('UNLINK', '{ENTRY}' .. key) end
  if #over > 0 then lose(tenant, over) end
  return #over
end
local function evict(tenant)
  local first = redis.call('ZRANGE', '{WORTH}' .. tenant, 0, 0, 'WITHSCORES')
  -- Entries of the first version have no priority. The entry of this put comes after all others.
  local key = first[2] ~= 'inf' and first[1] or redis.call('ZRANGE', '{USED}' .. tenant, 0, 0)[1]
  if not key then return 0 end
  if key == first[1] and first[2] ~= 'inf' then redis.call('HSET', '{CLOCK}', tenant, first[2]) end
  redis.call('UNLINK', '{ENTRY}' .. key)
  lose(tenant, {{key}})
  return 1
end
local function make_room(max_bytes, tries)
  while max_bytes > 0 and tries > 0 and tonumber(redis.call('GET', '{BYTES}') or '0') > max_bytes do
    local tenant = redis.call('ZREVRANGE', '{HELD}', 0, 0)[1]
    local gone = tenant and prune(tenant) or 0  -- entries that have ended are still counted
    if gone == 0 then gone = tenant and evict(tenant) or 0 end
    if gone == 0 then return end
    tries = tries - gone
  end
end
"""

# Sets up a Redis that is empty, or was emptied: removals before this moment are unknown.
# Returns the last sequence number.
BEGIN = (
    _COMMON
    + """
return begin()
"""
)

# ARGV: most changes, key, tenant, epoch, ends (ms), used (ms), size, most bytes of all entries (0: any number), field,
# value … The field `worth` is the cost for each byte. The put is the first use.
# A call evicts at most 1,000 entries, so that other callers of Redis do not wait for long.
# Returns the sequence number, 0 where there is a conflict, and how many entries there are of the key now.
PUT = (
    _COMMON
    + f"""
local key, tenant, epoch, entry = ARGV[2], ARGV[3], tonumber(ARGV[4]), '{ENTRY}' .. ARGV[2]
if epoch > tonumber(begin()) then return {{'0', 0}} end
for _, member in ipairs({{'k:' .. key, 't:' .. tenant, 'k:' .. key .. ':' .. tenant}}) do
  if tonumber(redis.call('ZSCORE', '{TOMBSTONES}', member) or '0') > epoch then return {{'0', 0}} end
end
if tonumber(redis.call('GET', '{WATERMARK}') or '0') > epoch then return {{'0', 0}} end
local sequence = announce('put', key, tenant, redis.call('EXISTS', entry), ARGV[1])
prune(tenant)  -- before what is put, which may be an entry of this key whose time is over
redis.call('HSET', entry, unpack(ARGV, 9))
redis.call('PEXPIREAT', entry, ARGV[5])
grow(tenant, ARGV[7] - (redis.call('HGET', '{SIZES}' .. tenant, key) or 0))
redis.call('HSET', '{SIZES}' .. tenant, key, ARGV[7])
redis.call('ZADD', '{TENANT}' .. tenant, ARGV[5], key)
redis.call('ZADD', '{USED}' .. tenant, ARGV[6], key)
redis.call('ZADD', '{WORTH}' .. tenant, 'inf', key)
redis.call('SADD', '{TENANTS}', tenant)
make_room(tonumber(ARGV[8]), 1000)
if redis.call('EXISTS', entry) == 1 then use(tenant, key, 1) end
return {{sequence, 1}}
"""
)

# ARGV: tenant, then of each entry its key, when it was last used (ms), and how often since the last report.
USE = (
    _COMMON
    + f"""
for place = 2, #ARGV, 3 do
  local key = ARGV[place]
  redis.call('ZADD', '{USED}' .. ARGV[1], 'XX', 'GT', ARGV[place + 1], key)
  if redis.call('HGET', '{ENTRY}' .. key, 'tenant') == ARGV[1] then use(ARGV[1], key, ARGV[place + 2]) end
end
return 0
"""
)

# ARGV: most changes, key, tenant, least score. A put leaves it as it is, so it holds until the entry goes.
# Returns the sequence number, 0 where the tenant has no such entry, and how many entries there are of the key.
TIGHTEN = (
    _COMMON
    + f"""
local key, least, entry = ARGV[2], ARGV[4], '{ENTRY}' .. ARGV[2]
if redis.call('HGET', entry, 'tenant') ~= ARGV[3] then return {{'0', 0}} end
if tonumber(redis.call('HGET', entry, 'least_score') or '0') >= tonumber(least) then return {{begin(), 1}} end
redis.call('HDEL', entry, '')
local sequence = announce('put', key, ARGV[3], 1, ARGV[1])
redis.call('HSET', entry, 'least_score', least)
return {{sequence, 1}}
"""
)

# ARGV: most changes, key, the tenant whose entry it must be (empty: any tenant's), most tombstones. Returns the
# sequence number, 0 where the entry is another tenant's, and how many entries went.
DELETE = (
    _COMMON
    + f"""
local key, entry = ARGV[2], '{ENTRY}' .. ARGV[2]
local owner, tenant, entries = ARGV[3], redis.call('HGET', entry, 'tenant'), redis.call('EXISTS', entry)
if owner ~= '' and tenant and tenant ~= owner then return {{'0', 0}} end
redis.call('UNLINK', entry)
local sequence = announce('delete', key, owner, entries, ARGV[1])
if tenant then lose(tenant, {{key}}) end
bury(owner == '' and 'k:' .. key or 'k:' .. key .. ':' .. owner, sequence, ARGV[4])
return {{sequence, entries}}
"""
)

# ARGV: tenant, most entries. Evicts so many of a tenant with more, as `make_room` does. Redis answers no other call
# during a script, so a large tenant is removed in such steps before `DELETE_TENANT`. Returns how many went; -1 where it
# has no more.
THIN = (
    _COMMON
    + f"""
local tenant, index, entries = ARGV[1], '{TENANT}' .. ARGV[1], 0
if redis.call('ZCARD', index) <= tonumber(ARGV[2]) then return -1 end
local keys = redis.call('ZRANGE', index, 0, ARGV[2] - 1)
for _, key in ipairs(keys) do entries = entries + redis.call('UNLINK', '{ENTRY}' .. key) end
lose(tenant, keys)
return entries
"""
)

# ARGV: most changes, tenant, most tombstones. Returns as DELETE does.
DELETE_TENANT = (
    _COMMON
    + f"""
local tenant, index = ARGV[2], '{TENANT}' .. ARGV[2]
local keys, entries = redis.call('ZRANGE', index, 0, -1), 0
for _, key in ipairs(keys) do entries = entries + redis.call('EXISTS', '{ENTRY}' .. key) end
redis.call('UNLINK', '{SIZES}' .. tenant)
for _, key in ipairs(keys) do redis.call('UNLINK', '{ENTRY}' .. key) end
local sequence = announce('delete_tenant', '', tenant, entries, ARGV[1])
grow(tenant, 0 - (redis.call('ZSCORE', '{HELD}', tenant) or 0))
redis.call('UNLINK', index, '{USED}' .. tenant, '{WORTH}' .. tenant)
redis.call('HDEL', '{CLOCK}', tenant)
redis.call('SREM', '{TENANTS}', tenant)
for _, made_by in ipairs(redis.call('ZRANGE', '{VERIFIED}', 0, -1)) do
  redis.call('ZREM', '{VERIFIED}' .. made_by, tenant)
  redis.call('UNLINK', '{VERIFIED}' .. made_by .. ':' .. tenant)
end
bury('t:' .. tenant, sequence, ARGV[3])
return {{sequence, entries}}
"""
)

# ARGV: how many tenants. Redis expires the entries; this removes their index records, of some tenants at a time.
PRUNE = (
    _COMMON
    + f"""
for _, tenant in ipairs(redis.call('SRANDMEMBER', '{TENANTS}', ARGV[1])) do prune(tenant) end
return 0
"""
)
