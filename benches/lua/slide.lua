-- A sliding window estimated from two counters, as RL.SLIDE answers it.
--
--   EVALSHA sha 1 key limit window_ms cost
--
-- A hash: where the current window starts, `s` in ms, and the units of the window before, `p`, and
-- of this one, `c`. Three calls within a window (TIME, HMGET, HINCRBY), two for a refusal; the
-- expiry is set once a window. Numbers are doubles: exact while units × window_us is below 2^53.
local key, limit, window_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local cost = tonumber(ARGV[3])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
local start_ms = now_ms - now_ms % window_ms
local windows = redis.call('HMGET', key, 's', 'p', 'c')
local previous, current, known = 0, 0, false
if windows[1] then
    local since_ms = start_ms - windows[1]
    if since_ms == 0 then
        previous, current, known = tonumber(windows[2]), tonumber(windows[3]), true
    elseif since_ms == window_ms then
        previous = tonumber(windows[3])
    end
end
local window_us, next_us = window_ms * 1000, (start_ms + window_ms) * 1000
local used = current + math.ceil(previous * (next_us - now_us) / window_us)
local allowed = used + cost <= limit
if allowed then
    if known then
        redis.call('HINCRBY', key, 'c', cost)
    else
        redis.call('HSET', key, 's', start_ms, 'p', previous, 'c', cost)
        redis.call('PEXPIREAT', key, start_ms + 2 * window_ms)
    end
    current, used = current + cost, used + cost
end
local retry_ms = 0
if cost > limit then
    retry_ms = -1
elseif used + cost > limit then
    -- When enough has faded: of the window before, or else, in the next one, of this.
    local spare, at_us = limit - cost, next_us
    if current <= spare then
        at_us = at_us - math.floor((spare - current) * window_us / previous)
    else
        at_us = at_us + window_us - math.floor(spare * window_us / current)
    end
    retry_ms = math.ceil((at_us - now_us) / 1000)
end
local reset_ms = 0
if current > 0 then
    reset_ms = start_ms + 2 * window_ms - now_ms
elseif previous > 0 then
    reset_ms = start_ms + window_ms - now_ms
end
return { allowed and 1 or 0, limit, limit > used and limit - used or 0, retry_ms, reset_ms }
