"""What Redis does for stored responses: each script is one atomic step, by Redis' own clock.

A response is a string with an expiry. A tenant has a sorted set of its responses by the time of their last use, in
microseconds, and a hash with the bytes of each, and of all together in the field ''. A response that was last used
longer ago than the time to live has expired.
"""

from __future__ import annotations

from typing import Final

_INDEX = """
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]

local function forget(name)
  local gone = redis.call('DEL', KEYS[3] .. name)
  redis.call('ZREM', KEYS[1], name)
  local size = redis.call('HGET', KEYS[2], name)
  if size then
    redis.call('HINCRBY', KEYS[2], '', -tonumber(size))
    redis.call('HDEL', KEYS[2], name)
  end
  return gone
end
"""

# KEYS: times of use, bytes, the beginning of every response's key. ARGV: name, data, time to live in milliseconds, most
# bytes of the tenant.
PUT: Final = (
    _INDEX
    + """
local name, data, ttl, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- Redis may have evicted one of the two.
if redis.call('EXISTS', KEYS[1]) ~= redis.call('EXISTS', KEYS[2]) then redis.call('DEL', KEYS[1], KEYS[2]) end
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ttl * 1000)) do forget(expired) end
forget(name)
redis.call('SET', KEYS[3] .. name, data, 'PX', ttl)
redis.call('ZADD', KEYS[1], now, name)
redis.call('HSET', KEYS[2], name, #data)
redis.call('HINCRBY', KEYS[2], '', #data)
while tonumber(redis.call('HGET', KEYS[2], '')) > most do forget(redis.call('ZRANGE', KEYS[1], 0, 0)[1]) end
redis.call('PEXPIRE', KEYS[1], 2 * ttl)
redis.call('PEXPIRE', KEYS[2], 2 * ttl)
return 1
"""
)

# KEYS: likewise. ARGV: name. Returns the data.
GET: Final = (
    _INDEX
    + """
local data = redis.call('GET', KEYS[3] .. ARGV[1])
if data then redis.call('ZADD', KEYS[1], 'XX', now, ARGV[1]) end
return data
"""
)

# KEYS: likewise. ARGV: name. Returns how many there were.
DELETE: Final = _INDEX + "return forget(ARGV[1])"
