"""Responses on Redis, which all gateways and workers share. They are encrypted with AES-256-GCM (NIST SP 800-38D).

The key of each follows from its id, which the caller has and Redis has not: a reader of Redis sees tenants' names,
sizes and times, and no operator has a key to keep.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from services.gateway.http.stored_responses.store import Owner, StoreUnavailable
from services.runtime.aside import aside
from services.runtime.line_limit import LineLimit
from services.runtime.policy.fair_slots import FairTurns
from services.runtime.shared_state import PREFIX, SharedState, SharedStateLost, is_refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from redis.asyncio import Redis

_NONCE_BYTES = 12
# At once, of all tenants in turn. Each has a connection of its own, and a client without one more takes Redis for lost.
_CALLS = 32
_TRANSFER_S = 1.0  # for responses of megabytes, beside the time that Redis has for any answer
_log = logging.getLogger(__name__)

_INDEX = """
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]

local function unlist(name)
  redis.call('ZREM', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
  local size = redis.call('HGET', KEYS[3], name)
  if size then
    redis.call('HINCRBY', KEYS[3], '', -tonumber(size))
    redis.call('HDEL', KEYS[3], name)
  end
end

local function forget(name)
  local gone = redis.call('DEL', KEYS[4] .. name)
  unlist(name)
  return gone
end

-- The time of a use: the latest one, also where this Redis' clock is behind that of a Redis before it.
local function next_use()
  return math.max(now, (redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0) + 1)
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
_PUT = (
    _INDEX
    + """
local name, data, ttl, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- First: a Redis whose memory is full refuses this, and after any other change would permit it.
redis.call('SET', KEYS[4] .. name, data, 'PX', ttl)
-- Redis may have evicted some of the index.
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) < 3 then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) end
unlist(name)
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 200)) do forget(expired) end
redis.call('ZADD', KEYS[1], next_use(), name)
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
_TRIM = _INDEX + "return trim(tonumber(ARGV[1]))"

# KEYS: likewise. ARGV: name. Returns the bytes of the data, 0 where there is none.
_SIZE = "return redis.call('STRLEN', KEYS[4] .. ARGV[1])"

# KEYS: likewise. ARGV: name. Returns the data.
_GET = (
    _INDEX
    + """
local data = redis.call('GET', KEYS[4] .. ARGV[1])
if data then redis.pcall('ZADD', KEYS[1], 'XX', next_use(), ARGV[1]) end  -- a Redis without room refuses this
return data
"""
)

# KEYS: likewise. ARGV: name. Returns how many there were.
_DELETE = _INDEX + "return forget(ARGV[1])"


class RedisResponses:
    """At most `tenant_bytes` of each tenant, of encrypted data."""

    def __init__(self, state: SharedState, ttl_ms: int, tenant_bytes: int):
        self._state, self._ttl_ms, self._tenant_bytes = state, ttl_ms, tenant_bytes
        self._turns, self._lines = FairTurns(_CALLS), LineLimit()

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        name = owner.storage_name(response_id)
        sealed = await aside(owner.tenant, len(data), partial(seal, response_id, name, data))
        if len(sealed) > self._tenant_bytes:
            return False
        over = await self._run(_PUT, owner, name, sealed, self._ttl_ms, self._tenant_bytes)
        while over:
            over = await self._run(_TRIM, owner, self._tenant_bytes)
        return True

    async def size(self, owner: Owner, response_id: str) -> int | None:
        return await self._run(_SIZE, owner, owner.storage_name(response_id)) or None

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        name = owner.storage_name(response_id)
        sealed = await self._run(_GET, owner, name)
        if sealed is None:
            return None
        return await aside(owner.tenant, len(sealed), partial(unseal, response_id, name, sealed))

    async def delete(self, owner: Owner, response_id: str) -> bool:
        return bool(await self._run(_DELETE, owner, owner.storage_name(response_id)))

    async def _run(self, script: str, owner: Owner, *given: str | bytes | int) -> Any:
        own = f"{PREFIX}responses:{{{owner.tenant}}}:"  # in one slot of a cluster

        async def call(client: Redis) -> Any:
            pipeline: Any = client.pipeline(transaction=False)
            pipeline.eval(script, 4, f"{own}used", f"{own}ends", f"{own}bytes", own, *given)
            [reply] = await pipeline.execute(raise_on_error=False)
            is_refused(reply)
            return reply

        await self._turns.begin(owner.tenant)
        try:
            reply = await self._state.transfer(call, _TRANSFER_S)
        except SharedStateLost as lost:
            raise StoreUnavailable(f"stored responses: {lost}", retry_delay_s=1.0) from None
        except TimeoutError:
            problem = f"Redis took more than {_TRANSFER_S:g} s"
            raise self._failed(problem, "its network is slow, or responses are large and many") from None
        finally:
            self._turns.ended()
        if isinstance(reply, Exception):
            raise self._failed("Redis refuses changes", str(reply))
        return reply

    def _failed(self, problem: str, cause: str) -> StoreUnavailable:
        """The error of a call that failed alone: Redis answers others."""
        if (left_out := self._lines.take()) is not None:
            text = "stored responses: %s, and %d times before since the last line: %s"
            _log.warning(text, problem, left_out, cause)
        return StoreUnavailable(f"stored responses: {problem}", retry_delay_s=1.0)


def seal(response_id: str, name: str, data: bytes) -> bytes:
    """`data` as only a caller with the id can read it, and under no other name."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(response_id).encrypt(nonce, data, name.encode())


def unseal(response_id: str, name: str, sealed: bytes) -> bytes | None:
    """The decrypted data; None if its authentication tag does not match."""
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(response_id).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
    except (InvalidTag, ValueError):
        return None


def _cipher(response_id: str) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(hashlib.sha256(b"hedgerow response " + response_id.encode()).digest())
