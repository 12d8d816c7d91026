//! Asking Redis: one command per request, with a time-out, behind a circuit breaker.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, IntoConnectionInfo, ProtocolVersion, RedisError, RedisFuture, RedisResult,
};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::breaker::Breaker;
use crate::decision::Decision;
use crate::lease::{Held, Lease};
use crate::limit::{self, Charge};

/// How long a request waits for Redis, unless said otherwise.
const TIMEOUT: Duration = Duration::from_millis(250);
/// So many commands in a row without an answer open the breaker.
const THRESHOLD: u32 = 5;
/// The pause between two trial calls of an open breaker, and between two attempts to give a lease back.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest time between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(250);

/// At most so many lines a second about keys: one that is damaged must not fill the disk.
const LINES: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// Why Redis did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not asked, or answered with an error: nothing is charged.
    NotJudged,
    /// It was asked, and did not answer, or not in a way that can be understood: everything may be
    /// charged.
    Unanswered,
    /// It was not asked: no server would take these charges. A mistake of the service, which is
    /// logged, so nothing may pass for it.
    InvalidCharges,
}

/// Redis as a judge. A clone shares the connection and the breaker.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    /// Sends a command, once.
    send: Box<dyn Fn(Cmd) -> RedisFuture<'static, Decision> + Send + Sync>,
    breaker: Breaker,
    /// Leases that are being given back.
    releases: TaskTracker,
    runtime: Handle,
    lines: DefaultDirectRateLimiter,
}

impl Limiter {
    /// Connects in the background, and again when a connection is lost: a service starts, and stays,
    /// without Redis as well.
    ///
    /// # Errors
    ///
    /// If the address can't be understood.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn connect(url: &str) -> RedisResult<Self> {
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
        Ok(Self::new(redis))
    }

    /// Uses a connection that is there already. It has to connect again by itself, as a
    /// [`ConnectionManager`] does, and to send no command twice.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn new(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Self {
        let send = move |command: Cmd| -> RedisFuture<'static, Decision> {
            let mut connection = connection.clone();
            Box::pin(async move { command.query_async(&mut connection).await })
        };
        let shared = Shared {
            send: Box::new(send),
            breaker: Breaker::new(THRESHOLD, PAUSE),
            releases: TaskTracker::new(),
            runtime: Handle::current(),
            lines: RateLimiter::direct(Quota::per_second(LINES)),
        };
        Self {
            shared: Arc::new(shared),
            timeout: TIMEOUT,
        }
    }

    /// How long a request waits for Redis: 250 ms, unless said otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Asks about a request, with one command. An admitted request holds its lease as long as the
    /// second value lives. So does one that Redis did not answer in time, as the lease may have been
    /// taken. It is not asked again, as the request may have been charged.
    pub async fn ask(&self, charges: &[Charge]) -> (Result<Decision, Failure>, Held) {
        if let Err(reason) = limit::check(charges) {
            self.log(format_args!("invalid charges: {reason}"), charges);
            return (Err(Failure::InvalidCharges), Held::default());
        }
        let leases = charges.iter().filter(|charge| charge.lease().is_some());
        let leases: Vec<Charge> = leases.cloned().collect();
        let (mut id, mut held) = (String::new(), Held::default());
        // Before it is asked for: a request that is given up before there is an answer may have got it.
        if let Some(ttl) = leases.iter().filter_map(Charge::lease).min() {
            id = Uuid::new_v4().simple().to_string();
            let release = limit::release(&leases, &id);
            held = Held::lease(Lease::new(self, leases, release), ttl);
        }
        let answer = if self.shared.breaker.lets_through(Instant::now()) {
            self.send(limit::command(charges, &id), charges).await
        } else {
            Err(Failure::NotJudged)
        };
        match &answer {
            Ok(decision) if decision.allowed => {}
            Err(Failure::Unanswered) => {}
            _ => held.not_taken(),
        }
        (answer, held)
    }

    /// Gives leases back, in the background. An open breaker doesn't hold it up, and it may be sent
    /// again: it changes nothing the second time. It is given up at the end of the leases.
    pub(crate) fn release(&self, leases: Vec<Charge>, command: Cmd) {
        let limiter = self.clone();
        let release = async move {
            let began = Instant::now();
            let ttl = leases.iter().filter_map(Charge::lease).max();
            let ttl = ttl.unwrap_or_default();
            while let Err(Failure::Unanswered) = limiter.send(command.clone(), &leases).await {
                if limiter.shared.releases.is_closed() || began.elapsed() >= ttl {
                    limiter.log("Redis does not answer: a lease is not given back", &leases);
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        self.shared.releases.spawn_on(release, &self.shared.runtime);
    }

    /// Waits until all leases have been given back: at the end of a process, once its requests are
    /// answered. It tries once more to give back those that Redis has not answered for. If it does
    /// not answer again, they end by their time.
    pub async fn finish(&self) {
        self.shared.releases.close();
        self.shared.releases.wait().await;
    }

    async fn send(&self, command: Cmd, charges: &[Charge]) -> Result<Decision, Failure> {
        let sent = (self.shared.send)(command);
        match timeout(self.timeout, sent).await {
            Ok(Ok(decision)) => {
                self.answered();
                Ok(decision)
            }
            // An error reply is an answer, and a quick one: it says that a key is damaged, or
            // that this call had to create one and memory is full. Others go on, so the breaker
            // stays closed.
            Ok(Err(error)) if error.code().is_some() => {
                self.answered();
                self.log(format_args!("Redis: {error}"), charges);
                Err(Failure::NotJudged)
            }
            // Also an answer that can't be understood: what became of the call is not known.
            Ok(Err(error)) => Err(self.unanswered(Some(&error))),
            Err(_) => Err(self.unanswered(None)),
        }
    }

    fn log(&self, what: impl Display, charges: &[Charge]) {
        if self.shared.lines.check().is_ok() {
            let keys: Vec<&str> = charges.iter().map(Charge::key).collect();
            log::warn!("{what}, for {}", keys.join(" "));
        }
    }

    fn answered(&self) {
        if self.shared.breaker.answered() {
            log::info!("Redis answers again");
        }
    }

    fn unanswered(&self, error: Option<&RedisError>) -> Failure {
        if self.shared.breaker.unanswered(Instant::now()) {
            match error {
                Some(error) => log::warn!("Redis does not answer: {error}"),
                None => log::warn!("Redis does not answer in time"),
            }
        }
        Failure::Unanswered
    }
}

/// So that the first request need not wait for a connection. The manager retries for ever and logs
/// nothing, so log the first failure here.
async fn warm_up(client: Client, mut redis: ConnectionManager) {
    if let Err(error) = client.get_multiplexed_async_connection().await {
        log::warn!("no connection to Redis yet: {error}");
    }
    if redis::cmd("PING").exec_async(&mut redis).await.is_ok() {
        log::info!("connected to Redis");
    }
}
