//! The way of a request: who, what, how often, and only then the application.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use uuid::Uuid;

use crate::answer;
use crate::decision::Decision;
use crate::lease::{Held, Lease};
use crate::limiter::{Failure, Limiter};
use crate::route::{OnFailure, Route};
use crate::rules::Rules;
use crate::upstream::Upstream;

pub(crate) struct Gateway {
    rules: RwLock<Arc<Rules>>,
    pub(crate) limiter: Arc<Limiter>,
    upstream: Upstream,
}

pub(crate) async fn answer_request(
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
    pub(crate) fn new(rules: Rules, limiter: Limiter, upstream: Upstream) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            limiter: Arc::new(limiter),
            upstream,
        }
    }

    /// Puts other rules in force. A request keeps those that it started with.
    pub(crate) fn replace_rules(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

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
        let id = if route.has_lease() {
            Uuid::new_v4().simple().to_string()
        } else {
            String::new()
        };
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
