-- What wrk sends: each request comes from the next one of so many callers. In the end it prints
-- requests, answers of 400 and above, other failures, µs that it took, p50 and p99 in µs.
local requests, at = {}, 0

function init(args)
    for caller = 1, tonumber(args[1]) do
        requests[caller] = wrk.format("GET", nil, { Authorization = "Bearer caller-" .. caller })
    end
end

function request()
    at = at % #requests + 1
    return requests[at]
end

function done(summary, latency)
    local errors = summary.errors
    local failures = errors.connect + errors.read + errors.write + errors.timeout
    print("figures", summary.requests, errors.status, failures, summary.duration,
        latency:percentile(50), latency:percentile(99))
end
