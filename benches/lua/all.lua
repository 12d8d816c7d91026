-- A token bucket and a fixed window, both or none, as RL.ALL answers them.
--
--   EVALSHA sha 2 bucket counter capacity refill period_ms limit window_ms cost
--
-- The bucket as in token.lua, the counter as in fixed.lua. Both are looked at, then both are
-- taken: six calls where they are known (TIME, HMGET, GET, PTTL, HSET, INCRBY), four for a refusal.
local bucket_key, count_key = KEYS[1], KEYS[2]
local capacity, refill, period_us = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] * 1000
local limit, cost = tonumber(ARGV[4]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local bucket = redis.call('HMGET', bucket_key, 'l', 't', 'e')
local full = capacity * period_us
local level = full
if bucket[1] then
    local elapsed_us = now_us - bucket[2]
    level = bucket[1] + (elapsed_us > 0 and elapsed_us or 0) * refill
    if level > full then level = full end
end
local count = tonumber(redis.call('GET', count_key) or 0)
local left_ms = count > 0 and redis.call('PTTL', count_key) or 0
if left_ms <= 0 then count, left_ms = 0, 0 end
local units = cost * period_us
local bucket_admits, count_admits = level >= units, count + cost <= limit
local allowed = bucket_admits and count_admits
if allowed then level, count = level - units, count + cost end
local now_ms = math.floor(now_us / 1000)
local wait_ms = math.ceil((full - level) / refill / 1000)
if allowed then
    if bucket[3] and bucket[3] - now_ms >= wait_ms then
        redis.call('HSET', bucket_key, 'l', level, 't', now_us)
    else
        local expire_ms = now_ms + math.floor(2 * full / refill / 1000) + 1000
        redis.call('HSET', bucket_key, 'l', level, 't', now_us, 'e', expire_ms)
        redis.call('PEXPIREAT', bucket_key, expire_ms)
    end
    if left_ms > 0 then
        redis.call('INCRBY', count_key, ARGV[6])
    else
        left_ms = tonumber(ARGV[5])
        redis.call('SET', count_key, ARGV[6], 'PX', ARGV[5])
    end
end
local bucket_ms, count_ms = 0, 0
if cost > capacity then
    bucket_ms = -1
elseif level < units then
    bucket_ms = math.ceil((units - level) / refill / 1000)
end
local remaining = limit > count and limit - count or 0
if cost > limit then count_ms = -1 elseif cost > remaining then count_ms = left_ms end
local retry_ms = math.max(bucket_ms, count_ms)
if bucket_ms < 0 or count_ms < 0 then retry_ms = -1 end
return { allowed and 1 or 0, retry_ms, {
    { bucket_admits and 1 or 0, capacity, math.floor(level / period_us), bucket_ms, wait_ms },
    { count_admits and 1 or 0, limit, remaining, count_ms, left_ms },
} }
