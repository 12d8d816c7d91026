//! What happens while Redis can't judge, and that it ends by itself.

use std::time::{Duration, Instant};

use axum::Router;
use redis::Value;
use redis_rl_tower::{Limiter, RateLimitLayer};
use support::{
    DEADLINE, INVALID_STATE, Options, Server, WRONG_TYPE, calls, info, keys, kill, redis_url,
    snapshot, wait_until,
};
use tokio::task::JoinSet;

use crate::app::{app, get, hourly, limit, on, wait_for_status};

const TIMEOUT: Duration = Duration::from_millis(300);

/// How long it may take to ask Redis again once it is back: the pause of the breaker, and an attempt to
/// connect, with room for a busy machine.
const RECOVERY: Duration = Duration::from_secs(5);

/// A service that fails closed and one that fails open, each with a breaker of its own.
fn both(url: &str, timeout: Duration) -> [Router; 2] {
    ["closed", "open"].map(|name| {
        let limiter = Limiter::connect(url).expect("an address");
        let limits = on([limit(name, hourly(100))]);
        let layer = RateLimitLayer::new(limiter.timeout(timeout), limits);
        app(match name {
            "open" => layer.fail_open(),
            _ => layer,
        })
    })
}

/// More requests than open a breaker, and Redis judges none.
async fn assert_not_judged([closed, open]: &[Router; 2]) {
    for _ in 0..8 {
        let answer = get(closed, "someone").await;
        assert_eq!(answer.status, 503);
        assert!(
            answer.body.contains("\"limiter_unavailable\""),
            "{answer:?}"
        );
        assert_eq!(answer.limits(), []);
        let answer = get(open, "someone").await;
        assert_eq!((answer.status, &*answer.body), (200, "ok"));
        // Where the limit stands is not known.
        let policy = ("ratelimit-policy", "\"open\";q=100;w=3600");
        assert_eq!(answer.limits(), [policy]);
    }
}

/// Redis judges both.
async fn assert_judged(apps: &[Router; 2], user: &str) {
    for app in apps {
        let answer = get(app, user).await;
        assert_eq!(answer.status, 200);
        assert!(answer.field("ratelimit").is_some(), "{answer:?}");
    }
}

/// Redis judges both again, soon.
async fn assert_recovers(apps: &[Router; 2]) {
    let [closed, open] = apps;
    let since = Instant::now();
    wait_for_status(closed, "someone", 200).await;
    while get(open, "someone").await.field("ratelimit").is_none() {
        assert!(since.elapsed() < DEADLINE, "it is not asked again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = since.elapsed();
    println!("recovered in {took:?}");
    assert!(took < RECOVERY, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_reply_concerns_one_key() {
    let damaged = ["rl:{someone}:closed:fixed", "rl:{someone}:open:fixed"];
    for (damage, error) in [
        (["SET", "KEY", "no counter"], INVALID_STATE),
        (["SADD", "KEY", "another type"], WRONG_TYPE),
    ] {
        let server = Server::start();
        let mut connection = server.connect();
        for key in damaged {
            let words = damage.map(|word| if word == "KEY" { key } else { word });
            support::send::<Value>(&mut connection, &words);
            let call = format!("RL.FIXED {key} 100 3600000");
            assert_eq!(support::error(&mut connection, &call), error);
        }
        let before = damaged.map(|key| snapshot(&mut connection, key));
        let apps = both(&redis_url(&server), DEADLINE);
        assert_not_judged(&apps).await;
        assert_eq!(damaged.map(|key| snapshot(&mut connection, key)), before);
        // The breakers are closed.
        assert_judged(&apps, "another").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_concerns_new_keys_only() {
    let server = Server::start();
    let apps = both(&redis_url(&server), DEADLINE);
    assert_judged(&apps, "another").await;
    support::send::<()>(&mut server.connect(), &["CONFIG", "SET", "maxmemory", "1"]);
    assert_not_judged(&apps).await;
    assert_judged(&apps, "another").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_module_is_no_judge() {
    let server = Options::new().without_module().start();
    assert_not_judged(&both(&redis_url(&server), DEADLINE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_may_start_before_its_server() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let url = redis_url(&server);
    let dir = server.stop("NOSAVE");
    let apps = both(&url, TIMEOUT);
    assert_not_judged(&apps).await;
    let _server = options.start_in(dir);
    assert_recovers(&apps).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_found_again() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let apps = both(&redis_url(&server), TIMEOUT);
    assert_judged(&apps, "someone").await;
    let dir = server.kill();
    assert_not_judged(&apps).await;
    let _server = options.start_in(dir);
    assert_recovers(&apps).await;
}

/// It accepts connections and commands, and answers none.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_piles_up_no_requests() {
    let server = Options::new().tcp().start();
    let apps = both(&redis_url(&server), TIMEOUT);
    assert_judged(&apps, "someone").await;
    kill(server.pid(), libc::SIGSTOP);
    let frozen = Instant::now();
    // Five of each wait for the time-out, and then only one in half a second.
    assert_not_judged(&apps).await;
    let waited = frozen.elapsed();
    assert!(waited >= TIMEOUT * 10, "{waited:?}");
    let began = Instant::now();
    for _ in 0..10 {
        assert_not_judged(&apps).await;
    }
    let took = began.elapsed();
    println!("160 requests to a frozen server took {took:?}");
    assert!(took < TIMEOUT * 160 / 4, "{took:?}");
    kill(server.pid(), libc::SIGCONT);
    assert_recovers(&apps).await;
}

/// A command that is not answered in time may have been charged.
#[tokio::test(flavor = "multi_thread")]
async fn no_command_is_sent_twice() {
    let server = Options::new().tcp().start();
    let apps = both(&redis_url(&server), TIMEOUT);
    assert_judged(&apps, "someone").await;
    // Fewer than open a breaker: each is sent.
    kill(server.pid(), libc::SIGSTOP);
    let mut answers = JoinSet::new();
    for app in apps.iter().cycle().take(8) {
        let app = app.clone();
        answers.spawn(async move { get(&app, "someone").await.status });
    }
    let statuses = answers.join_all().await;
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 4);
    kill(server.pid(), libc::SIGCONT);
    assert_judged(&apps, "someone").await;
    // Those before, those that froze, and those after.
    assert_eq!(calls(&server, "rl.fixed"), 2 + 8 + 2);
    let key = "rl:{someone}:closed:fixed";
    let used: u64 = support::send(&mut server.connect(), &["GET", key]);
    assert_eq!(used, 1 + 4 + 1);
}

/// One that breaks off under way is not sent again when there is a connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_connection_is_closed_is_not_sent_again() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let [closed, _] = both(&redis_url(&server), DEADLINE);
    assert_eq!(get(&closed, "someone").await.status, 200);
    kill(server.pid(), libc::SIGSTOP);
    let app = closed.clone();
    let under_way = tokio::spawn(async move { get(&app, "someone").await.status });
    tokio::time::sleep(TIMEOUT).await;
    assert!(!under_way.is_finished());
    let dir = server.kill();
    let server = options.start_in(dir);
    assert_eq!(under_way.await.unwrap(), 503);
    wait_until("a connection", || {
        info(&mut server.connect(), "clients", "connected_clients") > 1
    });
    wait_for_status(&closed, "another", 200).await;
    assert_eq!(keys(&server), ["rl:{another}:closed:fixed"]);
}
