"""What Redis does for a tenant's quota: each script is one atomic step, by Redis' own clock.

A tenant has a hash with its two buckets (`hedgerow:quota:{tenant}`) and two sorted sets of what it has in flight, each
with the time at which it no longer counts: `…:leases` with a slot of its concurrency, `…:turns` without. The buckets
are those of `policy/bucket.py`: a level, the time it was true, and the rate and the burst it fills with. A bucket that
is full need not be there.

The first change of each script frees memory. After it a Redis whose memory is full permits the script's other changes;
it would refuse a script that begins with one of these.
"""

from __future__ import annotations

from typing import Final

_BUCKETS = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6

-- The level of a bucket now. It has filled at its old rate, up to the new burst; the rest is lost. A Redis whose clock
-- is behind, as after a failover, counts from now on.
local function level(bucket, burst)
  local had = redis.call('HMGET', KEYS[1], bucket .. '_level', bucket .. '_at', bucket .. '_rate')
  if not had[1] then return burst end
  if had[2] + 0 > now then redis.call('HSET', KEYS[1], bucket .. '_at', now) end
  return math.min(had[1] + math.max(0, now - had[2]) * had[3], burst)
end

local function outlive(key, seconds)
  local needed = math.ceil(seconds * 1000) + 1000
  if redis.call('PTTL', key) < needed then redis.call('PEXPIRE', key, needed) end
end

local function keep(bucket, held, rate, burst)
  redis.call('HSET', KEYS[1], bucket .. '_level', held, bucket .. '_at', now,
    bucket .. '_rate', rate, bucket .. '_burst', burst)
  outlive(KEYS[1], (burst - held) / rate)
end

local function forget(bucket)
  redis.call('HDEL', KEYS[1], bucket .. '_level', bucket .. '_at', bucket .. '_rate', bucket .. '_burst')
end
"""

# KEYS: hash, leases. ARGV: id, lease in seconds, tokens, requests a second, their burst, tokens a second, their burst,
# requests at once, seconds that do not count, as how many requests it counts, and an id for each further slot. Returns
# {'', '0', '0'}, or {quota, seconds to wait, amount left}.
RESERVE: Final = (
    _BUCKETS
    + """
local id, lease_s, tokens = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rate, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local token_rate, token_burst, slots, at_once = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] + 0
local count, wanted = tonumber(ARGV[10]), #ARGV - 9

local function refused(quota, wait_s, left)
  return {quota, string.format('%.17g', wait_s), string.format('%.17g', left)}
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
-- Leases by a clock that was ahead of this one end as if they began now.
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], string.format('(%.17g', now + lease_s), '+inf')) do
  redis.call('ZADD', KEYS[2], now + lease_s, ahead)
end
local running = redis.call('ZCARD', KEYS[2])
if slots > 0 and running + wanted > slots then return refused('concurrency', 0, running) end
local requests, left = 0, 0
if rate > 0 then
  requests = level('requests', burst)
  local wait_s = (count - requests) / rate
  if wait_s > at_once then return refused('requests', wait_s, requests) end
end
if token_rate > 0 then
  left = level('tokens', token_burst)
  local wait_s = (math.min(tokens, token_burst) - left) / token_rate
  if wait_s > at_once then return refused('tokens', wait_s, left) end
end
if rate > 0 then keep('requests', requests - count, rate, burst) else forget('requests') end
if token_rate > 0 then keep('tokens', left - tokens, token_rate, token_burst) else forget('tokens') end
redis.call('ZADD', KEYS[2], now + lease_s, id)
for each = 11, #ARGV do redis.call('ZADD', KEYS[2], now + lease_s, ARGV[each]) end
outlive(KEYS[2], lease_s)
return {'', '0', '0'}
"""
)

# KEYS: hash, leases. ARGV: tokens a second, their burst, then of each request that has ended its id, the tokens left
# over, and 1 where they count without a lease. Those that were settled before have none, and count no more.
SETTLE: Final = (
    _BUCKETS
    + """
local rate, burst, over = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
for each = 3, #ARGV, 3 do
  local leased = redis.call('ZREM', KEYS[2], ARGV[each]) == 1
  if leased or ARGV[each + 2] == '1' then over = over + ARGV[each + 1] end
end
if rate > 0 and over ~= 0 then keep('tokens', math.min(burst, level('tokens', burst) + over), rate, burst) end
return over
"""
)

# KEYS: leases. ARGV: lease in seconds, then the id of each request that still runs. One without a lease gets one, even
# beyond the quota: it was admitted while Redis was down, or its gateway was silent for longer than a lease. It runs;
# if it did not count, another would be let in beside it.
RENEW: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for each = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[each]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] * 1000) + 1000)
return #ARGV - 1
"""
