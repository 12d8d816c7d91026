#!lua flags=no-writes,allow-stale
-- The figures of `INFO rl` for redis_exporter --script, as redis_script_values{key="rl_…"}.
-- The flags let it run while writes are paused and on a replica that has lost its primary.
local figures = {}
for name, value in redis.call("INFO", "rl"):gmatch("(rl_[%w_]+):(%d+)") do
    figures[#figures + 1] = name
    figures[#figures + 1] = value
end
return figures
