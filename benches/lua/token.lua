-- A token bucket that refills evenly and keeps fractions, as RL.TOKEN answers it.
--
--   EVALSHA sha 1 key capacity refill period_ms cost
--
-- A hash: the level `l` in units of 1/period_us token, its time `t` in µs, and until when, in ms,
-- the key lives, `e`. That third field spares asking for the TTL or setting it each time: it is set
-- with as much slack as RL.TOKEN gives it. Three calls where the bucket is known (TIME, HMGET,
-- HSET), two for a refusal. Numbers are doubles: exact while capacity × period_us is below 2^53.
local key, capacity, refill = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local period_us, cost = ARGV[3] * 1000, tonumber(ARGV[4])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local bucket = redis.call('HMGET', key, 'l', 't', 'e')
local full = capacity * period_us
local level = full
if bucket[1] then
    local elapsed_us = now_us - bucket[2]
    level = bucket[1] + (elapsed_us > 0 and elapsed_us or 0) * refill
    if level > full then level = full end
end
local units = cost * period_us
local allowed = level >= units
local now_ms = math.floor(now_us / 1000)
if allowed then level = level - units end
local wait_ms = math.ceil((full - level) / refill / 1000)
if allowed then
    if bucket[3] and bucket[3] - now_ms >= wait_ms then
        redis.call('HSET', key, 'l', level, 't', now_us)
    else
        local expire_ms = now_ms + math.floor(2 * full / refill / 1000) + 1000
        redis.call('HSET', key, 'l', level, 't', now_us, 'e', expire_ms)
        redis.call('PEXPIREAT', key, expire_ms)
    end
end
local retry_ms = 0
if cost > capacity then
    retry_ms = -1
elseif level < units then
    retry_ms = math.ceil((units - level) / refill / 1000)
end
return { allowed and 1 or 0, capacity, math.floor(level / period_us), retry_ms, wait_ms }
