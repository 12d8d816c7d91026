-- How many at once, as RL.LEASE answers it.
--
--   EVALSHA sha 1 key limit ttl_ms id
--
-- A sorted set: each id with the instant at which its lease ends, in ms. Those that are over leave
-- first. The key's expiry is set only where it falls short.
local key, limit, ttl_ms, id = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
local live = redis.call('ZCARD', key)
local held = redis.call('ZSCORE', key, id)
if held or live < limit then
    local end_ms = now_ms + ttl_ms
    redis.call('ZADD', key, end_ms, id)
    if not held then live = live + 1 end
    local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    local lasts_ms = last[2] - now_ms
    if redis.call('PTTL', key) < lasts_ms then
        redis.call('PEXPIREAT', key, now_ms + 2 * lasts_ms + 1000)
    end
    return { 1, limit, limit > live and limit - live or 0, 0, lasts_ms }
end
local ends = redis.call('ZRANGE', key, live - limit, live - limit, 'WITHSCORES')
local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
return { 0, limit, 0, ends[2] - now_ms, last[2] - now_ms }
