-- A fixed window that starts at the first admitted call, as RL.FIXED answers it.
--
--   EVALSHA sha 1 key limit window_ms cost
--
-- A counter with an expiry. Three calls where the window is open (GET, PTTL, INCRBY), two for a
-- refusal, which writes nothing. Numbers are doubles: exact up to 2^53.
local key, limit, cost = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[3])
local count = tonumber(redis.call('GET', key) or 0)
local left_ms = count > 0 and redis.call('PTTL', key) or 0
if left_ms <= 0 then count, left_ms = 0, 0 end
local allowed = count + cost <= limit
if allowed then
    if count > 0 then
        redis.call('INCRBY', key, ARGV[3])
    else
        left_ms = tonumber(ARGV[2])
        redis.call('SET', key, ARGV[3], 'PX', ARGV[2])
    end
    count = count + cost
end
local remaining = limit > count and limit - count or 0
local retry_ms = cost > limit and -1 or cost > remaining and left_ms or 0
return { allowed and 1 or 0, limit, remaining, retry_ms, left_ms }
