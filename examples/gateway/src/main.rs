//! An HTTP service that limits its callers with redis-rl: a complete application to copy from.
//!
//! | file | owns |
//! |---|---|
//! | `main` | the process: settings and signals |
//! | `gateway` | the way of a request |
//! | `answer` | statuses, header fields and bodies |
//! | `rules` | the rules file: who calls, what is limited, and by how much |
//! | `reload` | reading it again |
//! | `route` | a route's limits |
//! | `batches` | units that were fetched ahead |
//! | `refusals` | refusals that still hold, without asking Redis |
//! | `local` | the limiter of this process alone, for routes that fail open |
//! | `upstream` | the application that is protected |
//!
//! Asking Redis, with a time-out and a circuit breaker, leases, and the header fields about limits are
//! in the crate `redis-rl-tower` (`examples/adapters/tower`).
//!
//! | variable | meaning |
//! |---|---|
//! | `GATEWAY_LISTEN` | address and port, `127.0.0.1:8080` unless set |
//! | `GATEWAY_REDIS` | the server, `redis://127.0.0.1:6379` unless set |
//! | `GATEWAY_UPSTREAM` | address and port of the application; unless set, the gateway answers itself |
//! | `GATEWAY_RULES` | the rules file, `examples/gateway/rules.json` unless set |
//! | `GATEWAY_POLL_MS` | how often the file is looked at, every 5000 ms unless set |
//! | `GATEWAY_SECRET` | names tenants in Redis' keys; the same in every process, and kept secret |
//!
//! The rules are read again at SIGHUP and when their file has changed. SIGTERM and SIGINT end the
//! process once its requests are answered.

mod answer;
mod batches;
mod gateway;
mod local;
mod refusals;
mod reload;
mod route;
mod rules;
mod upstream;

use std::env::{self, VarError};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use log::{LevelFilter, Log, Metadata, Record};
use redis_rl_tower::Limiter;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use gateway::{Gateway, answer_request};
use reload::{Source, keep_up};
use upstream::Upstream;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let listen = setting("GATEWAY_LISTEN", Some("127.0.0.1:8080"))?;
    let redis = setting("GATEWAY_REDIS", Some("redis://127.0.0.1:6379"))?;
    let upstream = setting("GATEWAY_UPSTREAM", Some(""))?;
    let path = PathBuf::from(setting(
        "GATEWAY_RULES",
        Some("examples/gateway/rules.json"),
    )?);
    let poll = match setting("GATEWAY_POLL_MS", Some("5000"))?.parse() {
        Ok(ms @ 1..=86_400_000) => Duration::from_millis(ms),
        _ => return Err("GATEWAY_POLL_MS must be between 1 and 86400000".into()),
    };
    let secret = setting("GATEWAY_SECRET", None)?;
    if secret.len() < 16 {
        return Err("GATEWAY_SECRET must have at least 16 characters".into());
    }

    let (source, rules) = Source::open(path, secret).await?;
    let upstream = Upstream::new(&upstream);
    let upstream = upstream.map_err(|error| format!("GATEWAY_UPSTREAM: {error}"))?;
    log::set_logger(&Lines)?;
    log::set_max_level(LevelFilter::Info);
    let limiter = Limiter::connect(&redis)?;
    let gateway = Arc::new(Gateway::new(rules, limiter.clone(), upstream));
    // Signals first: until a handler is there, SIGHUP would end the process.
    let hangups = signal(SignalKind::hangup())?;
    let ends = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ];
    tokio::spawn(keep_up(Arc::clone(&gateway), source, hangups, poll));

    let listener = TcpListener::bind(&listen).await?;
    // One write: the process that started this one reads the address here.
    let line = format!("gateway: listening on {}\n", listener.local_addr()?);
    eprint!("{line}");
    let router = Router::new().fallback(answer_request).with_state(gateway);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(any(ends))
        .await?;
    limiter.finish().await;
    Ok(())
}

/// What the limiter logs is written where everything is.
struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redis_rl_tower")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("gateway: {}", record.args());
        }
    }

    fn flush(&self) {}
}

fn setting(name: &str, default: Option<&str>) -> Result<String, String> {
    match (env::var(name), default) {
        (Ok(value), _) => Ok(value),
        (Err(VarError::NotPresent), Some(default)) => Ok(default.to_owned()),
        (Err(error), _) => Err(format!("{name}: {error}")),
    }
}

async fn any([mut first, mut second]: [Signal; 2]) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
