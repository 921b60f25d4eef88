"""Changes of the shared entries, each in one script: an entry, what finds it and the news of it appear together.

Every change has a position, a number that only grows: Redis's time in microseconds, or one more than the last. The news
of a change carries the position of the change before it, so who reads along sees at once when one was missed.

A removal leaves a mark with its position. A put tells the last change its replica knew when the store began; a removal
after that overtakes it. When there are too many marks the oldest one goes, and becomes the floor: who knew less than
that is told that it was overtaken, because nobody can say any more that it was not.

The position is written first: a Redis that has no room left refuses that, and then nothing was done.

Redis' own eviction knows no tenants, so it must not come to that: a put that makes the entries too large makes room as
`fair_lru` does, by bytes. Of that there are no news: what replicas hold in memory they may go on to serve.
"""

from __future__ import annotations

from services.runtime.shared_state import PREFIX

_CACHE = f"{PREFIX}cache:"
ENTRY = f"{_CACHE}entry:"  # + key: a hash that ends with the entry
TENANT = f"{_CACHE}tenant:"  # + tenant: a sorted set of its keys by when they end, in Unix milliseconds
TENANTS = f"{_CACHE}tenants"  # a set of those that have such a set
USED = f"{_CACHE}used:"  # + tenant: a sorted set of its keys by their last use, in Unix milliseconds
SIZES = f"{_CACHE}sizes:"  # + tenant: a hash of its keys' bytes
HELD = f"{_CACHE}held"  # a sorted set of tenants by the bytes of all their entries
BYTES = f"{_CACHE}bytes"  # of all entries
POSITION = f"{_CACHE}position"  # of the last change
CHANGES = f"{_CACHE}changes"  # a stream: the news of each change, under its position
GONE = f"{_CACHE}gone"  # a sorted set of `k:<key>` and `t:<tenant>` by the position of their last removal
FLOOR = f"{_CACHE}gone:floor"  # the highest position of a mark that was given up

_NEWS = f"""
local function announce(op, what, tenant, entries, origin, number, max_changes)
  local before = tonumber(redis.call('GET', '{POSITION}') or '0')
  local time = redis.call('TIME')
  local position = string.format('%.0f', math.max(before + 1, time[1] * 1000000 + time[2]))
  redis.call('SET', '{POSITION}', position)
  redis.call('XADD', '{CHANGES}', 'MAXLEN', '~', max_changes, position .. '-0', 'before', string.format('%.0f', before),
    'op', op, 'what', what, 'tenant', tenant, 'entries', entries, 'origin', origin, 'number', number)
  return position
end
local function mark(member, position, max_marks)
  local last = redis.call('ZSCORE', '{GONE}', member) or '0'
  redis.call('ZADD', '{GONE}', position, member)
  while redis.call('ZCARD', '{GONE}') > tonumber(max_marks) do
    redis.call('SET', '{FLOOR}', redis.call('ZPOPMIN', '{GONE}')[2])
  end
  return last
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
  redis.call('ZREM', index, unpack(keys))
  grow(tenant, 0 - bytes)  -- Redis takes no -0
  if redis.call('EXISTS', index) == 0 then redis.call('SREM', '{TENANTS}', tenant) end
end
local function prune(tenant, now_ms)
  local over = redis.call('ZRANGEBYSCORE', '{TENANT}' .. tenant, '-inf', now_ms, 'LIMIT', 0, 1000)
  if #over > 0 then lose(tenant, over) end
end
local function make_room(max_bytes, tries)
  while max_bytes > 0 and tries > 0 and tonumber(redis.call('GET', '{BYTES}') or '0') > max_bytes do
    local tenant = redis.call('ZREVRANGE', '{HELD}', 0, 0)[1]
    local key = tenant and redis.call('ZRANGE', '{USED}' .. tenant, 0, 0)[1]
    if not key then return end
    redis.call('UNLINK', '{ENTRY}' .. key)
    lose(tenant, {{key}})
    tries = tries - 1
  end
end
"""

# ARGV: origin, number, most changes, key, tenant, known, forgiven, ends (ms), used (ms), now (ms), size, most bytes of
# all entries (0: any number), field, value …
# At most 1,000 entries make room at a time, so that nobody waits for long.
# Returns whether the entry is kept: 0 when it was overtaken.
PUT = (
    _NEWS
    + f"""
local key, tenant, known, entry = ARGV[4], ARGV[5], tonumber(ARGV[6]), '{ENTRY}' .. ARGV[4]
for _, member in ipairs({{'k:' .. key, 't:' .. tenant}}) do
  local gone = redis.call('ZSCORE', '{GONE}', member)
  local forgiven = gone and string.find(ARGV[7], string.format(' %.0f ', tonumber(gone)), 1, true)
  if gone and tonumber(gone) > known and not forgiven then return 0 end
end
if tonumber(redis.call('GET', '{FLOOR}') or '0') > known then return 0 end
announce('put', key, tenant, redis.call('EXISTS', entry), ARGV[1], ARGV[2], ARGV[3])
redis.call('HSET', entry, unpack(ARGV, 13))
redis.call('PEXPIREAT', entry, ARGV[8])
prune(tenant, ARGV[10])
grow(tenant, ARGV[11] - (redis.call('HGET', '{SIZES}' .. tenant, key) or 0))
redis.call('HSET', '{SIZES}' .. tenant, key, ARGV[11])
redis.call('ZADD', '{TENANT}' .. tenant, ARGV[8], key)
redis.call('ZADD', '{USED}' .. tenant, ARGV[9], key)
redis.call('SADD', '{TENANTS}', tenant)
make_room(tonumber(ARGV[12]), 1000)
return 1
"""
)

# ARGV: origin, number, most changes, key, most marks
# Returns the position, and those of the mark before it and of the floor, as they were.
DELETE = (
    _NEWS
    + f"""
local key, entry, floor = ARGV[4], '{ENTRY}' .. ARGV[4], redis.call('GET', '{FLOOR}') or '0'
local tenant = redis.call('HGET', entry, 'tenant')
local position = announce('delete', key, '', redis.call('EXISTS', entry), ARGV[1], ARGV[2], ARGV[3])
redis.call('UNLINK', entry)
if tenant then lose(tenant, {{key}}) end
return {{position, mark('k:' .. key, position, ARGV[5]), floor}}
"""
)

# ARGV: origin, number, most changes, tenant, most marks
# Returns as DELETE does.
DELETE_TENANT = (
    _NEWS
    + f"""
local tenant, index, floor = ARGV[4], '{TENANT}' .. ARGV[4], redis.call('GET', '{FLOOR}') or '0'
local keys, entries = redis.call('ZRANGE', index, 0, -1), 0
for _, key in ipairs(keys) do entries = entries + redis.call('EXISTS', '{ENTRY}' .. key) end
local position = announce('delete_tenant', '', tenant, entries, ARGV[1], ARGV[2], ARGV[3])
for _, key in ipairs(keys) do redis.call('UNLINK', '{ENTRY}' .. key) end
grow(tenant, 0 - (redis.call('ZSCORE', '{HELD}', tenant) or 0))
redis.call('UNLINK', index, '{USED}' .. tenant, '{SIZES}' .. tenant)
redis.call('SREM', '{TENANTS}', tenant)
return {{position, mark('t:' .. tenant, position, ARGV[5]), floor}}
"""
)

# ARGV: now (ms), tenants. Entries end by themselves; this takes what found them away, of some tenants at a time.
PRUNE = (
    _NEWS
    + f"""
for _, tenant in ipairs(redis.call('SRANDMEMBER', '{TENANTS}', ARGV[2])) do prune(tenant, ARGV[1]) end
return 0
"""
)
