# frozen_string_literal: true

# usage: ruby throttle_test.rb "SERVER" MODULE

require "minitest/autorun"
require "rack"
require "socket"
require "tmpdir"
require_relative "../../../examples/adapters/rack-attack/redis_rl_throttle"

SERVER, MODULE = ARGV.shift(2)

class ThrottleTest < Minitest::Test
  def setup
    @folder = Dir.mktmpdir
    @port = TCPServer.open("127.0.0.1", 0) { |probe| probe.addr[1] }
    start
    @limiter = Redis.new(port: @port, connect_timeout: 2, timeout: 0.25, reconnect_attempts: 0)
    Rack::Attack.clear_configuration
    RedisRLThrottle.add("ip", redis: @limiter, limit: 3, period: 60) { |request| request.ip }
    Rack::Attack.throttled_responder = RedisRLThrottle::RESPONDER
    @app = Rack::Attack.new(->(_env) { [200, {}, ["hello"]] })
  end

  def start
    options = ["--port", @port.to_s, "--bind", "127.0.0.1", "--save", "", "--dir", @folder, "--logfile", "log"]
    @server = spawn(*SERVER.split, *options, "--loadmodule", MODULE)
    patient = Redis.new(port: @port, reconnect_attempts: 0)
    50.times do
      return patient.ping && patient.close
    rescue Redis::CannotConnectError
      sleep 0.1
    end
    flunk "the server did not start"
  end

  def stop
    Process.kill("KILL", @server)
    Process.wait(@server)
  end

  def teardown
    Process.kill("CONT", @server)
    stop
    FileUtils.remove_entry(@folder)
  end

  def get(address = "10.0.0.1")
    @app.call(Rack::MockRequest.env_for("/", "REMOTE_ADDR" => address))
  end

  def test_limits_and_tells_the_wait
    assert_equal([200, 200, 200], Array.new(3) { get[0] })
    status, headers, = get
    assert_equal([429, "20"], [status, headers["retry-after"]])
    assert_equal(200, get("10.0.0.2")[0])
    assert_equal(["rack::attack:ip:10.0.0.1", "rack::attack:ip:10.0.0.2"], Redis.new(port: @port).keys.sort)
  end

  def test_a_refused_request_is_not_charged
    3.times { get }
    before = Redis.new(port: @port).dump("rack::attack:ip:10.0.0.1")
    3.times { assert_equal(429, get[0]) }
    assert_equal(before, Redis.new(port: @port).dump("rack::attack:ip:10.0.0.1"))
  end

  def test_fifty_threads_at_limit_three
    app = @app
    statuses = Array.new(50) { Thread.new { app.call(Rack::MockRequest.env_for("/", "REMOTE_ADDR" => "10.0.0.3"))[0] } }
    assert_equal(3, statuses.map(&:value).count(200))
  end

  def test_lets_pass_while_nobody_can_judge
    4.times { get }
    assert_equal(429, get[0])
    Process.kill("STOP", @server)
    assert_equal(200, get[0])
    Process.kill("CONT", @server)
    stop
    assert_equal(200, get[0])
    start
    assert_equal([200, 200, 200, 429], Array.new(4) { get[0] })
  end

  # Each error that the server can answer: its state, its limits of a policy, its rights.
  def test_lets_pass_and_warns_where_the_server_answers_an_error
    admin = Redis.new(port: @port)
    admin.lpush("rack::attack:ip:10.0.0.1", "a")
    assert_output("", /\Aredis_rl_throttle ip lets pass: WRONGTYPE .*\n\z/) { assert_equal(200, get[0]) }
    admin.set("rack::attack:ip:10.0.0.1", "another's")
    assert_output("", /lets pass: INVALIDSTATE /) { assert_equal(200, get[0]) }
    assert_equal("another's", admin.get("rack::attack:ip:10.0.0.1"))
    RedisRLThrottle.add("ip", redis: @limiter, limit: 3, period: 0) { |request| request.ip }
    assert_output("", /lets pass: ERR /) { assert_equal(200, get[0]) }
    admin.call("ACL", "SETUSER", "default", "-rl.token")
    assert_output("", /lets pass: NOPERM /) { assert_equal(200, get[0]) }
  end

  Notifier = Struct.new(:events) do
    def instrument(event, _payload)
      events << event
    end
  end

  def test_a_limit_of_0_refuses_as_any_refusal
    Rack::Attack.notifier = Notifier.new([])
    [0, ->(_request) { 0 }, -1].each do |limit|
      RedisRLThrottle.add("ip", redis: @limiter, limit: limit, period: 60) { |request| request.ip }
      env = Rack::MockRequest.env_for("/", "REMOTE_ADDR" => "10.0.0.1")
      status, headers, = @app.call(env)
      assert_equal([429, nil], [status, headers["retry-after"]])
      assert_equal(["ip", "10.0.0.1"], env.values_at("rack.attack.matched", "rack.attack.match_discriminator"))
      assert_same(env["rack.attack.match_data"], env["rack.attack.throttle_data"]["ip"])
    end
    assert_equal(3, Rack::Attack.notifier.events.count("throttle.rack_attack"))
    assert_empty(Redis.new(port: @port).keys)
  ensure
    Rack::Attack.notifier = nil
  end

  # Rack::Attack has one responder for all throttles.
  def test_the_responder_serves_throttles_of_rack_attack
    Rack::Attack.cache.store = Redis.new(port: @port)
    Rack::Attack.throttle("theirs", limit: 0, period: 3600) { |request| request.ip }
    env = Rack::MockRequest.env_for("/", "REMOTE_ADDR" => "10.0.0.1")
    status, headers, = @app.call(env)
    epoch_time = env["rack.attack.match_data"][:epoch_time]
    assert_equal([429, (3600 - epoch_time % 3600).to_s], [status, headers["retry-after"]])
    keys = ["rack::attack:#{epoch_time / 3600}:theirs:10.0.0.1", "rack::attack:ip:10.0.0.1"]
    assert_equal(keys, Redis.new(port: @port).keys.sort)
  end

  def test_the_responder_of_rack_attack_serves_this_throttle
    Rack::Attack.throttled_responder = Rack::Attack::Configuration::DEFAULT_THROTTLED_RESPONDER
    Rack::Attack.throttled_response_retry_after_header = true
    3.times { get }
    status, headers, = get
    assert_equal(429, status)
    assert_includes(1..60, headers["retry-after"].to_i)
  end
end
