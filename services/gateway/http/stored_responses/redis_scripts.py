"""What Redis does for stored responses: each script is one atomic step, by Redis' own clock.

A response is a string with an expiry. A tenant has two sorted sets of its responses, by the time of their last use and
by that of their expiry, in microseconds, and a hash with the bytes of each, and of all together in the field ''. One
call forgets a limited number of responses, because Redis serves no other caller meanwhile.
"""

from __future__ import annotations

from typing import Final

_INDEX = """
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]

local function forget(name)
  local gone = redis.call('DEL', KEYS[4] .. name)
  redis.call('ZREM', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
  local size = redis.call('HGET', KEYS[3], name)
  if size then
    redis.call('HINCRBY', KEYS[3], '', -tonumber(size))
    redis.call('HDEL', KEYS[3], name)
  end
  return gone
end

-- Whether there are still more bytes than `most`.
local function trim(most)
  for _ = 1, 200 do
    if tonumber(redis.call('HGET', KEYS[3], '') or 0) <= most then return 0 end
    local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
    if not first then return 0 end
    forget(first)
  end
  return 1
end
"""

# KEYS: times of use, times of expiry, bytes, the beginning of every response's key. ARGV: name, data, time to live in
# milliseconds, most bytes of the tenant. Returns whether there are still more.
PUT: Final = (
    _INDEX
    + """
local name, data, ttl, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- Redis may have evicted some of the index.
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) < 3 then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) end
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 200)) do forget(expired) end
forget(name)
redis.call('SET', KEYS[4] .. name, data, 'PX', ttl)
redis.call('ZADD', KEYS[1], now, name)
redis.call('ZADD', KEYS[2], now + ttl * 1000, name)
redis.call('HSET', KEYS[3], name, #data)
redis.call('HINCRBY', KEYS[3], '', #data)
-- The index outlives every response: one with less time than another shortens nothing.
for each = 1, 3 do
  if redis.call('PTTL', KEYS[each]) < 2 * ttl then redis.call('PEXPIRE', KEYS[each], 2 * ttl) end
end
return trim(most)
"""
)

# KEYS: likewise. ARGV: most bytes of the tenant. Returns whether there are still more.
TRIM: Final = _INDEX + "return trim(tonumber(ARGV[1]))"

# KEYS: likewise. ARGV: name. Returns the bytes of the data, 0 where there is none.
SIZE: Final = "return redis.call('STRLEN', KEYS[4] .. ARGV[1])"

# KEYS: likewise. ARGV: name. Returns the data.
GET: Final = (
    _INDEX
    + """
local data = redis.call('GET', KEYS[4] .. ARGV[1])
if data then redis.call('ZADD', KEYS[1], 'XX', now, ARGV[1]) end
return data
"""
)

# KEYS: likewise. ARGV: name. Returns how many there were.
DELETE: Final = _INDEX + "return forget(ARGV[1])"
