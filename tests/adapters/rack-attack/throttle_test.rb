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

  def test_lets_pass_where_the_state_is_anothers
    Redis.new(port: @port).lpush("rack::attack:ip:10.0.0.1", "a")
    assert_equal(200, get[0])
  end
end
