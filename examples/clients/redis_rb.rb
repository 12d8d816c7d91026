# redis-rb: one decision per line "KEY COST" of standard input.
#
#     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 ruby redis_rb.rb
require "redis"

# A call that timed out may have been charged: sent again, it would be charged twice.
LIMITER = Redis.new(url: ENV.fetch("REDIS_URL"), timeout: 0.25, reconnect_attempts: 0)

# HTTP status, headers, and why there was no judgement.
def check(key, cost = 1)
  allowed, _limit, _remaining, retry_after_ms, _reset_after_ms =
    LIMITER.call("RL.TOKEN", key, 100, 10, 1000, "COST", cost)
  return [200, {}] if allowed == 1
  return [429, {}] if retry_after_ms.negative? # costs more than the bucket holds: no wait helps

  [429, { "Retry-After" => (retry_after_ms + 999) / 1000 }]
rescue Redis::BaseError => e
  [503, {}, e.message] # or 200, if your policy is to let pass
end

$stdout.sync = true
$stdin.each_line do |line|
  key, cost = line.split
  status, headers, reason = check(key, cost.to_i)
  puts [status, *headers.map { |name, value| "#{name}: #{value}" }, reason].join(" ")
end
