//! The least HTTP service with a limit: what a decision costs it by `RL.TOKEN` and by a Lua script.
//!
//! | path | answered |
//! |---|---|
//! | `/none` | at once |
//! | `/module` | after `RL.TOKEN` |
//! | `/script` | after the same decision by `benches/lua/token.lua` |
//!
//! The `Authorization` field names the limiter. `REDIS_URL` names the server. The service prints
//! the address that it listens on, as the gateway does.

use std::env;
use std::error::Error;

use axum::Router;
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::get;
use redis::aio::ConnectionManager;
use redis::{Client, Cmd, RedisResult, cmd};
use tokio::net::TcpListener;

/// The bucket of `benches/gateway/run`: capacity, refill, period in ms.
const BUCKET: (u64, u64, u64) = (100_000, 100_000, 86_400_000);

#[derive(Clone)]
struct Limiter {
    redis: ConnectionManager,
    script: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::open(env::var("REDIS_URL")?)?;
    let mut redis = client.get_connection_manager().await?;
    let script = include_str!("../../lua/token.lua");
    let mut load = cmd("SCRIPT");
    let script = load.arg("LOAD").arg(script).query_async(&mut redis).await?;
    let router = Router::new()
        .route("/none", get(StatusCode::OK))
        .route("/module", get(module))
        .route("/script", get(script_call))
        .with_state(Limiter { redis, script });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

async fn module(State(limiter): State<Limiter>, headers: HeaderMap) -> StatusCode {
    let mut call = cmd("RL.TOKEN");
    call.arg(key("module", &headers)).arg(BUCKET);
    ask(limiter, &call).await
}

async fn script_call(State(limiter): State<Limiter>, headers: HeaderMap) -> StatusCode {
    let mut call = cmd("EVALSHA");
    call.arg(&limiter.script).arg(1);
    call.arg(key("script", &headers)).arg(BUCKET).arg(1);
    ask(limiter, &call).await
}

/// The script keeps a Hash where `RL.TOKEN` keeps a String, so each has its own keys.
fn key(kind: &str, headers: &HeaderMap) -> Vec<u8> {
    let caller = headers
        .get(AUTHORIZATION)
        .map_or(&b""[..], HeaderValue::as_bytes);
    [kind.as_bytes(), b":", caller].concat()
}

async fn ask(mut limiter: Limiter, call: &Cmd) -> StatusCode {
    let reply: RedisResult<(bool, i64, i64, i64, i64)> = call.query_async(&mut limiter.redis).await;
    match reply {
        Ok((true, ..)) => StatusCode::OK,
        Ok(_) => StatusCode::TOO_MANY_REQUESTS,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
