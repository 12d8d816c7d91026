//! How many requests are handled at once, and that leases are given back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::any;
use http_body::Frame;
use http_body_util::BodyExt;
use redis::{RedisResult, Value};
use redis_rl_tower::{Failure, Limit, Limiter, Policy, RateLimitLayer};
use support::{DEADLINE, Options, Server, calls, keys, kill, redis_url, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::app::{at_once, get, hourly, limit, limiter, on, request, send, wait_for_status};
use crate::fake::{Fake, admitted};

const TIMEOUT: Duration = Duration::from_millis(300);

/// What a service waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// Before it answers.
    Answer,
    /// After the first part of its response.
    Body,
}

/// A service that streams its response, `first` and `last`, and counts how many requests it handles at
/// once.
struct Service {
    app: Router,
    hold: watch::Sender<Hold>,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

struct Counted(Arc<Count>);

impl Counted {
    fn new(count: &Arc<Count>) -> Self {
        let now = count.now.fetch_add(1, Ordering::SeqCst) + 1;
        count.most.fetch_max(now, Ordering::SeqCst);
        count.all.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Parts {
    parts: mpsc::Receiver<&'static str>,
    /// Until the last part.
    counted: Option<Counted>,
}

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.poll_recv(context);
        if let Poll::Ready(None) = part {
            self.counted = None;
        }
        part.map(|part| part.map(|part| Ok(Frame::data(part.into()))))
    }
}

impl Service {
    fn start<const N: usize>(limiter: Limiter, limits: [Limit; N]) -> Self {
        let (hold, _) = watch::channel(Hold::Nothing);
        let count = Arc::<Count>::default();
        let (holds, counts) = (hold.clone(), Arc::clone(&count));
        let answer = async move || {
            let counted = Counted::new(&counts);
            let mut hold = holds.subscribe();
            let _ = hold.wait_for(|hold| *hold != Hold::Answer).await;
            let (send, parts) = mpsc::channel(1);
            tokio::spawn(async move {
                let _ = send.send("first ").await;
                // Some work, however fast the machine is.
                sleep(Duration::from_millis(5)).await;
                let _ = hold.wait_for(|hold| *hold != Hold::Body).await;
                let _ = send.send("last").await;
            });
            let counted = Some(counted);
            Response::new(Body::new(Parts { parts, counted }))
        };
        let layer = RateLimitLayer::new(limiter, on(limits));
        let app = Router::new().fallback(any(answer)).layer(layer);
        Self { app, hold, count }
    }

    fn hold(&self, what: Hold) {
        self.hold.send_replace(what);
    }

    fn now(&self) -> usize {
        self.count.now.load(Ordering::SeqCst)
    }
}

/// How many leases the server counts, all keys together.
fn leases(server: &Server) -> u64 {
    let keys = keys(server).into_iter();
    let leases = keys.filter(|key| key.ends_with(":lease"));
    let count = |key: String| support::send::<u64>(&mut server.connect(), &["ZCARD", &key]);
    leases.map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_streams_at_once_never_exceed_five() {
    let server = Server::start();
    let limits = [limit("at-once", at_once(5)), limit("hour", hourly(1_000))];
    let service = Service::start(limiter(&server), limits);
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let app = service.app.clone();
        callers.spawn(async move {
            for _ in 0..3 {
                let answer = wait_for_status(&app, "someone", 200).await;
                assert_eq!(answer.body, "first last");
            }
        });
    }
    callers.join_all().await;
    assert_eq!(service.count.most.load(Ordering::SeqCst), 5);
    assert_eq!(service.count.all.load(Ordering::SeqCst), 60);
    wait_until("all leases back", || leases(&server) == 0);
    // What was refused for want of a place is not charged, and has nothing to give back.
    let hour = "rl:{someone}:hour:fixed";
    let used: u64 = support::send(&mut server.connect(), &["GET", hour]);
    assert_eq!(used, 60);
    assert_eq!(calls(&server, "rl.lease"), 60);
    assert!(calls(&server, "rl.all") > 60, "none was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_given_back_at_the_end_of_the_body() {
    let server = Server::start();
    let service = Service::start(limiter(&server), [limit("at-once", at_once(1))]);
    let mut response = send(&service.app, request("someone")).await;
    assert_eq!(leases(&server), 1);
    let answer = get(&service.app, "someone").await;
    assert_eq!(answer.status, 429);
    let retry_after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((50..=60).contains(&retry_after), "{retry_after}");
    let policy = "\"at-once\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(answer.field("ratelimit-policy"), Some(policy));
    // Others have a limit of their own.
    assert_eq!(get(&service.app, "another").await.status, 200);
    while response.body_mut().frame().await.is_some() {}
    // The response is still there.
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(get(&service.app, "someone").await.status, 200);
    drop(response);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_given_back_when_its_caller_hangs_up() {
    let server = Server::start();
    let service = Service::start(limiter(&server), [limit("at-once", at_once(1))]);
    // In the middle of the response.
    service.hold(Hold::Body);
    let mut response = send(&service.app, request("someone")).await;
    let first = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first ");
    assert_eq!((leases(&server), service.now()), (1, 1));
    drop(response);
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(service.now(), 0);
    // Before there is a response.
    service.hold(Hold::Answer);
    let app = service.app.clone();
    let asked = tokio::spawn(async move { get(&app, "someone").await });
    wait_until("a request", || service.now() == 1);
    assert_eq!(leases(&server), 1);
    asked.abort();
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(service.now(), 0);
    service.hold(Hold::Nothing);
    assert_eq!(get(&service.app, "someone").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_closed_gives_its_lease_back() {
    let server = Server::start();
    let service = Service::start(limiter(&server), [limit("at-once", at_once(1))]);
    service.hold(Hold::Body);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = service.app.clone();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut caller = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-User: someone\r\n\r\n";
    caller.write_all(request).await.unwrap();
    let mut response = String::new();
    while !response.contains("first") {
        let mut bytes = [0; 1024];
        let count = caller.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "{response}");
        response += std::str::from_utf8(&bytes[..count]).unwrap();
    }
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert_eq!((leases(&server), service.now()), (1, 1));
    drop(caller);
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(service.now(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_gives_all_its_leases_back() {
    let server = Server::start();
    let limits = [limit("user", at_once(1)), limit("all", at_once(9))];
    let service = Service::start(limiter(&server), limits);
    service.hold(Hold::Body);
    let response = send(&service.app, request("someone")).await;
    assert_eq!(leases(&server), 2);
    assert_eq!(get(&service.app, "someone").await.status, 429);
    assert_eq!(leases(&server), 2);
    drop(response);
    wait_until("all leases back", || leases(&server) == 0);
    assert_eq!(calls(&server, "rl.all"), 3);
}

/// With time to give it back: what outlives its lease would be one more than the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_handled_for_nine_tenths_of_its_lease() {
    let server = Server::start();
    let lease = Policy::Lease {
        limit: 1,
        ttl_ms: 5_000,
    };
    let service = Service::start(limiter(&server), [limit("at-once", lease)]);
    service.hold(Hold::Answer);
    let began = Instant::now();
    assert_eq!(get(&service.app, "someone").await.status, 504);
    let took = began.elapsed().as_millis();
    assert!((4_500..5_000).contains(&took), "{took} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_outlives_its_lease_is_ended() {
    let server = Server::start();
    let second = Policy::Lease {
        limit: 1,
        ttl_ms: 1_000,
    };
    let service = Service::start(limiter(&server), [limit("at-once", second)]);
    service.hold(Hold::Answer);
    let began = Instant::now();
    let answer = get(&service.app, "someone").await;
    let took = began.elapsed();
    assert_eq!(answer.status, 504);
    assert!(answer.body.contains("\"took_too_long\""), "{answer:?}");
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert_eq!(service.now(), 0);
    // Also in the middle of its response, even if the caller does not read it.
    service.hold(Hold::Body);
    wait_until("a lease back", || leases(&server) == 0);
    for reads in [true, false] {
        let began = Instant::now();
        let mut response = send(&service.app, request("someone")).await;
        assert_eq!(response.status(), 200);
        let body = response.body_mut();
        if reads {
            assert!(body.frame().await.unwrap().is_ok());
            assert!(body.frame().await.unwrap().is_err());
        } else {
            wait_until("the end of the request", || service.now() == 0);
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(900), "{took:?}");
        assert_eq!(service.now(), 0);
        wait_until("a lease back", || leases(&server) == 0);
        let cut = response.into_body().collect().await;
        assert!(cut.is_err(), "not a whole response");
    }
    service.hold(Hold::Nothing);
    assert_eq!(get(&service.app, "someone").await.status, 200);
}

/// The server reads both what was asked and what was given up, once it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_confirmed_in_time_is_given_back() {
    let server = Options::new().tcp().start();
    let limiter = Limiter::connect(&redis_url(&server)).unwrap();
    let limiter = limiter.timeout(Duration::from_millis(300));
    let service = Service::start(limiter, [limit("at-once", at_once(1))]);
    assert_eq!(get(&service.app, "someone").await.status, 200);
    wait_until("a lease back", || leases(&server) == 0);
    kill(server.pid(), libc::SIGSTOP);
    assert_eq!(get(&service.app, "someone").await.status, 503);
    kill(server.pid(), libc::SIGCONT);
    wait_until("both commands", || calls(&server, "rl.lease") >= 4);
    assert_eq!(leases(&server), 0);
    assert_eq!(service.count.all.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_ends_waits_until_its_leases_are_back() {
    let server = Options::new().tcp().start();
    let limiter = limiter(&server);
    let service = Service::start(limiter.clone(), [limit("at-once", at_once(1))]);
    let response = send(&service.app, request("someone")).await;
    kill(server.pid(), libc::SIGSTOP);
    drop(response);
    let finish = limiter.finish();
    tokio::pin!(finish);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut finish).await;
    assert!(early.is_err(), "it did not wait");
    kill(server.pid(), libc::SIGCONT);
    tokio::time::timeout(DEADLINE, finish).await.unwrap();
    assert_eq!(leases(&server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_does_not_keep_leases() {
    let server = Options::new().tcp().start();
    let limiter = Limiter::connect(&redis_url(&server)).unwrap();
    let service = Service::start(limiter.timeout(TIMEOUT), [limit("at-once", at_once(9))]);
    service.hold(Hold::Body);
    let response = send(&service.app, request("someone")).await;
    assert_eq!(response.status(), 200);
    kill(server.pid(), libc::SIGSTOP);
    for _ in 0..8 {
        assert_eq!(get(&service.app, "another").await.status, 503);
    }
    kill(server.pid(), libc::SIGCONT);
    drop(response);
    // Well before their minute is over.
    wait_until("all leases back", || leases(&server) == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_given_back_once_its_server_is_back() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let limiter = Limiter::connect(&redis_url(&server)).unwrap();
    let service = Service::start(limiter.timeout(TIMEOUT), [limit("at-once", at_once(9))]);
    service.hold(Hold::Body);
    let response = send(&service.app, request("someone")).await;
    assert_eq!(response.status(), 200);
    let dir = server.stop("SAVE");
    drop(response);
    // The first attempt has failed.
    sleep(TIMEOUT * 2).await;
    let server = options.start_in(dir);
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(calls(&server, "rl.lease"), 1);
}

/// So calls on a key that is gone don't go on for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_not_given_back_after_its_end() {
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let limiter = Limiter::new(Fake(move |command: &str| {
        if command.ends_with("RELEASE") {
            count.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        Some(Ok(admitted()))
    }));
    let limiter = limiter.timeout(Duration::from_millis(50));
    let ttl = Duration::from_secs(2);
    let at_once = limit(
        "at-once",
        Policy::Lease {
            limit: 9,
            ttl_ms: 2_000,
        },
    );
    let (answer, held) = limiter.ask(&[at_once.of("someone")]).await;
    assert!(answer.unwrap().allowed);
    let began = Instant::now();
    drop((held, limiter));
    wait_until("the end of it", || Arc::strong_count(&sent) == 1);
    let took = began.elapsed();
    assert!(took >= ttl, "{took:?}");
    let sent = sent.load(Ordering::SeqCst);
    assert!((2..=5).contains(&sent), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_ends_does_not_wait_for_a_server_that_is_gone() {
    let server = Options::new().tcp().start();
    let limiter = Limiter::connect(&redis_url(&server)).unwrap();
    let limiter = limiter.timeout(TIMEOUT);
    let day = Policy::Lease {
        limit: 9,
        ttl_ms: 86_400_000,
    };
    let service = Service::start(limiter.clone(), [limit("at-once", day)]);
    let response = send(&service.app, request("someone")).await;
    assert_eq!(response.status(), 200);
    kill(server.pid(), libc::SIGSTOP);
    drop(response);
    let finish = tokio::time::timeout(DEADLINE, limiter.finish());
    finish.await.expect("an end");
}

/// Redis is asked about requests as often as without them.
#[tokio::test(flavor = "multi_thread")]
async fn leases_that_wait_to_be_given_back_do_not_keep_the_breaker_open() {
    let up = Arc::new(AtomicBool::new(true));
    let answers = Arc::clone(&up);
    let answer = move |_: &str| answers.load(Ordering::SeqCst).then(|| Ok(admitted()));
    let limiter = Limiter::new(Fake(answer)).timeout(Duration::from_millis(50));
    let (at_once, hour) = (limit("at-once", at_once(9)), limit("hour", hourly(9)));
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(limiter.ask(&[at_once.of("someone")]).await.1);
    }
    up.store(false, Ordering::SeqCst);
    let ask = async || limiter.ask(&[hour.of("someone")]).await.0.unwrap_err();
    while ask().await == Failure::Unanswered {}
    // From now on, one of them fails every 50 ms.
    for held in held {
        drop(held);
        sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    let mut trials = 0;
    while began.elapsed() < Duration::from_secs(2) {
        match ask().await {
            Failure::Unanswered => trials += 1,
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
    assert!((2..=5).contains(&trials), "{trials}");
}

/// Only an error reply says that nothing was taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_answer_is_not_understood_is_given_back() {
    let error: RedisResult<Value> =
        redis::parse_redis_value(b"-OOM no memory\r\n").and_then(Value::extract_error);
    for (answer, failure, released) in [
        (Ok(Value::Okay), Failure::Unanswered, 1),
        (Ok(Value::Array(vec![])), Failure::Unanswered, 1),
        (error, Failure::NotJudged, 0),
    ] {
        let sent = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&sent);
        let limiter = Limiter::new(Fake(move |command: &str| {
            if command.ends_with("RELEASE") {
                count.fetch_add(1, Ordering::SeqCst);
                return Some(Ok(admitted()));
            }
            Some(answer.clone())
        }));
        let (answer, held) = limiter
            .ask(&[limit("at-once", at_once(9)).of("someone")])
            .await;
        assert_eq!(answer, Err(failure));
        drop(held);
        limiter.finish().await;
        assert_eq!(sent.load(Ordering::SeqCst), released);
    }
}
