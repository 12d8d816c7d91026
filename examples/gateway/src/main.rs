//! An HTTP service that limits its callers with redis-rl: a complete application to copy from.
//!
//! | file | owns |
//! |---|---|
//! | `main` | the process: settings, signals, and the way of a request |
//! | `decision` | what a limiter decides on a request |
//! | `policy` | the numbers of a limit, and how a command says them |
//! | `rules` | the rules file: who calls, what is limited, and by how much |
//! | `reload` | reading them again |
//! | `limiter` | asking Redis, with a time-out and a circuit breaker |
//! | `lease` | what a request holds while it is handled |
//! | `batches` | units that were fetched ahead |
//! | `refusals` | refusals that still hold, without asking Redis |
//! | `breaker` | the circuit breaker |
//! | `local` | the limiter of this process alone, for routes that fail open |
//! | `upstream` | the application that is protected |
//! | `answer` | statuses, header fields and bodies |
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
//! The rules are read again at SIGHUP and when their file has changed. SIGTERM and SIGINT end the process once its requests are answered.

mod answer;
mod batches;
mod breaker;
mod decision;
mod lease;
mod limiter;
mod local;
mod policy;
mod refusals;
mod reload;
mod rules;
mod upstream;

use std::env::{self, VarError};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

use decision::Decision;
use lease::{Held, Lease};
use limiter::{Failure, Limiter};
use reload::{Source, keep_up};
use rules::{OnFailure, Route, Rules};
use upstream::Upstream;

struct Gateway {
    rules: RwLock<Arc<Rules>>,
    limiter: Arc<Limiter>,
    upstream: Upstream,
}

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
        Ok(ms @ 1..) => Duration::from_millis(ms),
        _ => return Err("GATEWAY_POLL_MS must be a number of milliseconds above 0".into()),
    };
    let secret = setting("GATEWAY_SECRET", None)?;
    if secret.len() < 16 {
        return Err("GATEWAY_SECRET must have at least 16 characters".into());
    }

    let (source, rules) = Source::open(path, secret).await?;
    let gateway = Arc::new(Gateway {
        rules: RwLock::new(Arc::new(rules)),
        limiter: Arc::new(Limiter::connect(&redis)?),
        upstream: Upstream::new(&upstream).map_err(|error| format!("GATEWAY_UPSTREAM: {error}"))?,
    });
    // Signals first: until a handler is there, SIGHUP would end the process.
    let hangups = signal(SignalKind::hangup())?;
    let ends = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ];
    tokio::spawn(keep_up(Arc::clone(&gateway), source, hangups, poll));

    let listener = TcpListener::bind(&listen).await?;
    // In one piece: whoever started this reads its address here.
    let line = format!("gateway: listening on {}\n", listener.local_addr()?);
    eprint!("{line}");
    let limiter = Arc::clone(&gateway.limiter);
    let router = Router::new().fallback(answer_request).with_state(gateway);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(any(ends))
        .await?;
    limiter.finish().await;
    Ok(())
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

/// The way of a request: who, what, how often, and only then the application.
async fn answer_request(
    State(gateway): State<Arc<Gateway>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let rules = gateway.rules();
    // The API key alone tells who calls. Anyone can write `X-Forwarded-For`, `X-User-Id` and their
    // like into a request, so nothing here reads them.
    let Some(tenant) = rules.tenant(request.headers()) else {
        return answer::unknown_api_key();
    };
    let Some(route) = rules.route(request.method(), request.uri().path()) else {
        return answer::unknown_route();
    };
    let keys = rules.keys(route, tenant, caller.ip());
    match gateway.judge(&rules, route, &keys).await {
        Some((decision, held)) if decision.allowed => {
            let mut response = held.during(gateway.upstream.answer(request)).await;
            answer::describe(response.headers_mut(), route, &decision);
            response
        }
        Some((decision, _)) => answer::refused(route, &decision),
        None => answer::unavailable(),
    }
}

impl Gateway {
    /// The rules in force. A request keeps those that it started with.
    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The decision on a request and what it then holds, or none where no decision can be had and
    /// the route fails closed.
    async fn judge(
        &self,
        rules: &Rules,
        route: &Route,
        keys: &[String],
    ) -> Option<(Decision, Held)> {
        let id = Uuid::new_v4().simple().to_string();
        let mut held = Held::default();
        if let Some((key, release, ttl)) = route.lease(keys, &id) {
            let lease = Lease::new(&self.limiter, key, release, rules.timeout);
            held = Held::lease(lease, ttl);
        }
        let asked = self.ask(rules, route, keys, &id);
        let shared = match (route.batch, keys) {
            (Some(_), [key]) => rules.batches.take(key, rules.timeout, asked).await,
            _ => asked.await,
        };
        match &shared {
            Ok(decision) if decision.allowed => {}
            // It may be taken all the same.
            Err(Failure::Unanswered) => {}
            _ => held.not_taken(),
        }
        match (shared, route.on_failure) {
            (Ok(decision), _) => Some((decision, held)),
            (Err(_), OnFailure::Open) => {
                let (decision, place) = route.judge_alone(keys);
                held.add(place);
                Some((decision, held))
            }
            (Err(_), OnFailure::Closed) => None,
        }
    }

    /// Asks Redis, unless its last answer still holds.
    async fn ask(
        &self,
        rules: &Rules,
        route: &Route,
        keys: &[String],
        id: &str,
    ) -> Result<Decision, Failure> {
        let since = Instant::now();
        let asked = route.remember_refusals.then(|| route.asked(keys));
        if let Some(refusal) = asked
            .as_ref()
            .and_then(|asked| rules.refusals.recall(asked, since))
        {
            return Ok(refusal);
        }
        let command = route.command(keys, id);
        let decision = self.limiter.ask(keys, &command, rules.timeout).await?;
        if let (Some(asked), Some(wait)) = (asked, route.sure_wait(&decision)) {
            let refusal = decision.clone();
            rules.refusals.remember(asked, refusal, since, wait);
        }
        Ok(decision)
    }
}
