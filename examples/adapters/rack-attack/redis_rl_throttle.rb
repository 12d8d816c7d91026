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
  NEVER = [0, 0, 0, -1, 0].freeze

  # Retry-After as the server tells it, and none where the request will never fit. For throttles of
  # Rack::Attack, which have the same responder, it is the end of their window.
  RESPONDER = lambda do |request|
    data = request.env["rack.attack.match_data"]
    retry_after_ms = data[:retry_after_ms] || (data[:period] - data[:epoch_time] % data[:period]) * 1000
    headers = { "content-type" => "text/plain" }
    headers["retry-after"] = (retry_after_ms / 1000.0).ceil.to_s if retry_after_ms >= 0
    [429, headers, ["Retry later\n"]]
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
    period = period_for(request)
    return false unless (reply = decide("#{cache.prefix}:#{name}:#{discriminator}", limit, period))

    allowed, _limit, remaining, retry_after_ms, reset_after_ms = reply
    data = { discriminator: discriminator, limit: limit, period: period, epoch_time: Time.now.to_i,
             remaining: remaining, retry_after_ms: retry_after_ms, reset_after_ms: reset_after_ms }
    annotate_request_with_throttle_data(request, data)
    return false if allowed == 1

    annotate_request_with_matched_data(request, data)
    Rack::Attack.instrument(request)
    true
  end

  private

  # The server's reply, or nil where nobody can judge: then the request passes, as in Rack::Attack.
  def decide(key, limit, period)
    return NEVER if limit < 1 # refuses all, as in Rack::Attack; the server takes no such limit

    @redis.call("RL.TOKEN", key, limit, limit, period * 1000)
  rescue Redis::BaseConnectionError # away, or too slow
    nil
  rescue Redis::BaseError => error # a mistake, which nobody would notice
    warn "redis_rl_throttle #{name} lets pass: #{error.message}"
  end
end
