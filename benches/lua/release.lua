-- Gives a lease back, as RL.LEASE … RELEASE answers it.
--
--   EVALSHA sha 1 key limit id
local key, limit, id = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
local released = redis.call('ZREM', key, id)
local live = redis.call('ZCARD', key)
local last = live > 0 and redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
local lasts_ms = last and last[2] - now_ms or 0
return { released, limit, limit > live and limit - live or 0, released - 1, lasts_ms }
