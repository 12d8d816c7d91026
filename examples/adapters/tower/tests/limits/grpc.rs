//! The layer in front of a tonic service, as a gRPC client sees it.

use std::net::SocketAddr;

use redis_rl_tower::{Limiter, Policy, RateLimitLayer};
use support::{DEADLINE, Server, T0, calls, keys, wait_until};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, server::TcpIncoming};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::app::{at_once, field, hourly, limit, limiter, on};

/// Serves the health of nothing in particular, behind the layer.
async fn start(layer: RateLimitLayer) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let (_reporter, service) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder()
        .layer(layer)
        .add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    HealthClient::new(endpoint.connect().await.expect("a server"))
}

fn of(user: &'static str) -> Request<HealthCheckRequest> {
    let mut request = Request::new(HealthCheckRequest::default());
    request
        .metadata_mut()
        .insert("x-user", user.parse().expect("a name"));
    request
}

/// What is said of limits, beside the status.
fn limits(metadata: &MetadataMap) -> [Option<&str>; 3] {
    let headers = metadata.as_ref();
    ["ratelimit", "ratelimit-policy", "grpc-retry-pushback-ms"].map(|name| field(headers, name))
}

fn assert_status(status: &Status, code: Code, message: &str) {
    assert_eq!((status.code(), status.message()), (code, message));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_is_told_when_to_come_back() {
    let server = Server::at(T0);
    let layer = RateLimitLayer::new(limiter(&server), on([limit("hour", hourly(2))]));
    let mut client = start(layer).await;
    let policy = Some("\"hour\";q=2;w=3600");
    for now in ["\"hour\";r=1;t=3600", "\"hour\";r=0;t=3600"] {
        let answer = client.check(of("someone")).await.expect("an answer");
        assert_eq!(limits(answer.metadata()), [Some(now), policy, None]);
    }
    for (ms, wait) in [(0, "3600000"), (3_599_999, "1")] {
        server.set_clock(T0 + ms * 1_000);
        let status = client.check(of("someone")).await.unwrap_err();
        assert_status(&status, Code::ResourceExhausted, "Too many requests.");
        assert_eq!(limits(status.metadata())[2], Some(wait));
        assert_eq!(field(status.metadata().as_ref(), "retry-after"), None);
    }
    server.set_clock(T0 + 3_600_000_000);
    client.check(of("someone")).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_fits_is_told_so() {
    let server = Server::start();
    let hour = limit("hour", hourly(2));
    let layer = RateLimitLayer::new(limiter(&server), move |_| vec![hour.of("all").cost(3)]);
    let status = start(layer).await.check(of("someone")).await.unwrap_err();
    let message = "This request costs more than the limit ever allows.";
    assert_status(&status, Code::ResourceExhausted, message);
    assert_eq!(limits(status.metadata())[2], Some("-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_call_is_unavailable_or_passes() {
    let layer = || {
        let limiter = Limiter::connect("redis://127.0.0.1:1").expect("an address");
        let limiter = limiter.timeout(DEADLINE / 100);
        RateLimitLayer::new(limiter, on([limit("hour", hourly(2))]))
    };
    let status = start(layer()).await.check(of("someone")).await.unwrap_err();
    assert_status(
        &status,
        Code::Unavailable,
        "The rate limiter is out of reach.",
    );
    assert_eq!(limits(status.metadata()), [None; 3]);
    let mut open = start(layer().fail_open()).await;
    for _ in 0..3 {
        open.check(of("someone")).await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_invalid_charges_is_an_internal_error() {
    let server = Server::start();
    let hour = limit("hour", hourly(2));
    let layer = RateLimitLayer::new(limiter(&server), move |_| vec![hour.of("all").cost(0)]);
    let mut client = start(layer.fail_open()).await;
    let status = client.check(of("someone")).await.unwrap_err();
    let message = "The service charges this request in a way that is not possible.";
    assert_status(&status, Code::Internal, message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_holds_its_lease_until_its_caller_ends_it() {
    let server = Server::start();
    let leases = || -> u64 {
        let keys = keys(&server);
        keys.first().map_or(0, |key| {
            support::send(&mut server.connect(), &["ZCARD", key])
        })
    };
    let layer = RateLimitLayer::new(limiter(&server), on([limit("streams", at_once(1))]));
    let mut client = start(layer).await;
    let mut stream = client
        .watch(of("someone"))
        .await
        .expect("a stream")
        .into_inner();
    stream
        .message()
        .await
        .expect("a stream")
        .expect("a first message");
    assert_eq!(leases(), 1);
    let status = client.watch(of("someone")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(stream);
    wait_until("a lease back", || leases() == 0);
    client.watch(of("someone")).await.expect("a stream");
    assert!(calls(&server, "rl.lease") >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_outlives_its_lease_is_ended() {
    let server = Server::start();
    let lease = Policy::Lease {
        limit: 1,
        ttl_ms: 500,
    };
    let layer = RateLimitLayer::new(limiter(&server), on([limit("streams", lease)]));
    let mut client = start(layer).await;
    let mut stream = client
        .watch(of("someone"))
        .await
        .expect("a stream")
        .into_inner();
    stream
        .message()
        .await
        .expect("a stream")
        .expect("a first message");
    assert!(stream.message().await.is_err(), "the stream went on");
}
