# frozen_string_literal: true

# Rack::Attack on redis-rl: a throttle that lets the server decide, as a token bucket.
#
#     require "redis_rl_throttle"
#     limiter = Redis.new(url: ENV["REDIS_URL"], connect_timeout: 0.25, timeout: 0.25, reconnect_attempts: 0)
#     RedisRLThrottle.add("requests/ip", redis: limiter, limit: 100, period: 60) { |request| request.ip }
#     Rack::Attack.throttled_responder = RedisRLThrottle::RESPONDER
#
# (No second try, which reconnect_attempts would make: a call that timed out may have been charged.)

require "rack/attack"
require "redis"

class RedisRLThrottle < Rack::Attack::Throttle
  # Retry-After as the server tells it. Rack::Attack's own is the end of its window.
  RESPONDER = lambda do |request|
    seconds = (request.env["rack.attack.match_data"][:retry_after_ms] / 1000.0).ceil
    [429, { "content-type" => "text/plain", "retry-after" => seconds.to_s }, ["Retry later\n"]]
  end

  def self.add(name, options, &block)
    Rack::Attack.configuration.throttles[name] = new(name, options, &block)
  end

  def initialize(name, options, &block)
    super
    @redis = options.fetch(:redis)
  end

  def matched_by?(request)
    return false unless (discriminator = discriminator_for(request))

    limit = limit_for(request)
    key = "#{cache.prefix}:#{name}:#{discriminator}"
    allowed, _limit, remaining, retry_after_ms, reset_after_ms =
      @redis.call("RL.TOKEN", key, limit, limit, period_for(request) * 1000)
    data = { discriminator: discriminator, limit: limit, remaining: remaining,
             retry_after_ms: retry_after_ms, reset_after_ms: reset_after_ms }
    annotate_request_with_throttle_data(request, data)
    return false if allowed == 1

    annotate_request_with_matched_data(request, data)
    Rack::Attack.instrument(request)
    true
  rescue Redis::BaseError # nobody can judge: let pass, as Rack::Attack does where Redis is away
    false
  end
end
