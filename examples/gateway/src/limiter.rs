//! Asking Redis: one command per request, with a time-out, behind a circuit breaker.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, FromRedisValue, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult,
};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::breaker::Breaker;
use crate::decision::Decision;

/// So many commands in a row without an answer open the breaker.
const THRESHOLD: u32 = 5;
/// How often an open breaker tries a command.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest time between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(250);

/// At most so many lines a second about error replies: one damaged key must not fill the disk.
const LINES: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// Why Redis did not decide.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// It was not asked, or answered with an error: nothing is charged.
    NotJudged,
    /// It was asked, and did not answer: everything may be charged.
    Unanswered,
}

pub(crate) struct Limiter {
    /// Leases that are being given back.
    releases: TaskTracker,
    runtime: Handle,
    redis: ConnectionManager,
    breaker: Breaker,
    log: DefaultDirectRateLimiter,
}

impl Limiter {
    /// Connects in the background: the gateway starts, and stays, without Redis as well.
    pub(crate) fn connect(url: &str) -> RedisResult<Self> {
        let tcp = TcpSettings::default().set_nodelay(true);
        // A peer that has vanished without a word closes no connection, and the kernel would try the
        // old one ever more rarely: after twelve seconds without a network it takes seven to be
        // found again, like this one at most.
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(2));
        let info = url.into_connection_info()?.set_tcp_settings(tcp);
        // With RESP3 the manager hears of a closed connection at once, and not from the next
        // request, which would be lost.
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let config = ConnectionManagerConfig::new()
            .set_max_delay(RECONNECT)
            .set_number_of_retries(usize::MAX)
            .set_connection_timeout(Some(Duration::from_secs(1)))
            // `ask` has its own, which counts waiting for a connection too.
            .set_response_timeout(None);
        let client = Client::open(info.set_redis_settings(settings))?;
        let redis = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
        tokio::spawn(warm_up(client, redis.clone()));
        Ok(Self {
            releases: TaskTracker::new(),
            runtime: Handle::current(),
            redis,
            breaker: Breaker::new(THRESHOLD, PAUSE),
            log: RateLimiter::direct(Quota::per_second(LINES)),
        })
    }

    /// Asks about a request. Unless Redis decides within `timeout`, it is a failure. It is not asked
    /// again, as the request may have been charged.
    pub(crate) async fn ask(
        &self,
        keys: &[String],
        command: &Cmd,
        timeout: Duration,
    ) -> Result<Decision, Failure> {
        if let [_] = keys {
            let reply: [i64; 5] = self.send(keys, command, timeout).await?;
            return Ok(Decision::of_one(reply.into()));
        }
        let reply = self.send(keys, command, timeout).await?;
        Ok(Decision::of_all(reply))
    }

    /// Gives a lease back, in the background.
    pub(crate) fn release(self: &Arc<Self>, key: String, command: Cmd, timeout: Duration) {
        let limiter = Arc::clone(self);
        let release = async move {
            // Whatever comes of it has been told: the lease ends by its time.
            let _ = limiter.send::<[i64; 5]>(&[key], &command, timeout).await;
        };
        self.releases.spawn_on(release, &self.runtime);
    }

    /// Waits until all leases have been given back.
    pub(crate) async fn finish(&self) {
        self.releases.close();
        self.releases.wait().await;
    }

    async fn send<T: FromRedisValue>(
        &self,
        keys: &[String],
        command: &Cmd,
        timeout: Duration,
    ) -> Result<T, Failure> {
        if !self.breaker.lets_through(Instant::now()) {
            return Err(Failure::NotJudged);
        }
        let mut redis = self.redis.clone();
        match tokio::time::timeout(timeout, command.query_async::<T>(&mut redis)).await {
            Ok(Ok(reply)) => {
                self.answered();
                Ok(reply)
            }
            // An error reply is an answer, and a quick one: it says that a key is damaged, or
            // that this call had to create one and memory is full. Others go on, so the breaker
            // stays closed.
            Ok(Err(error)) if !error.is_io_error() => {
                self.answered();
                if self.log.check().is_ok() {
                    eprintln!("gateway: Redis: {error}, for {}", keys.join(" "));
                }
                Err(Failure::NotJudged)
            }
            Ok(Err(error)) => Err(self.unanswered(Some(&error))),
            Err(_) => Err(self.unanswered(None)),
        }
    }

    fn answered(&self) {
        if self.breaker.answered() {
            eprintln!("gateway: Redis answers again");
        }
    }

    fn unanswered(&self, error: Option<&RedisError>) -> Failure {
        if self.breaker.unanswered(Instant::now()) {
            match error {
                Some(error) => eprintln!("gateway: Redis does not answer: {error}"),
                None => eprintln!("gateway: Redis does not answer in time"),
            }
        }
        Failure::Unanswered
    }
}

/// So that the first request need not wait for a connection. The manager tries for ever and keeps
/// its reasons to itself, so a connection that is not to be had is told of here.
async fn warm_up(client: Client, mut redis: ConnectionManager) {
    if let Err(error) = client.get_multiplexed_async_connection().await {
        eprintln!("gateway: no connection to Redis yet: {error}");
    }
    if redis::cmd("PING").exec_async(&mut redis).await.is_ok() {
        eprintln!("gateway: connected to Redis");
    }
}
