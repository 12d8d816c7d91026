//! The way of a request: who, what, how often, and only then the application.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use redis_rl_tower::{Charge, Decision, Failure, Held, Limiter, Rejection, describe};

use crate::answer;
use crate::route::{OnFailure, Route};
use crate::rules::Rules;
use crate::upstream::Upstream;

pub(crate) struct Gateway {
    rules: RwLock<Arc<Rules>>,
    limiter: Limiter,
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
    let charges = rules.charges(route, tenant, caller.ip());
    let rejection = match gateway.judge(&rules, route, &charges).await {
        Some((decision, held)) if decision.allowed => {
            let mut answer = match held.wait(gateway.upstream.answer(request)).await {
                Some(answer) => answer.map(|body| Body::new(held.until_sent(body))),
                None => rejected(Rejection::TookTooLong, &charges),
            };
            let standings = decision.standings.as_deref();
            describe(answer.headers_mut(), &charges, standings);
            return answer;
        }
        Some((decision, _)) => Rejection::Refused(decision),
        None => Rejection::Unavailable,
    };
    rejected(rejection, &charges)
}

fn rejected(rejection: Rejection, charges: &[Charge]) -> Response {
    rejection.http(charges).map(Body::new)
}

impl Gateway {
    pub(crate) fn new(rules: Rules, limiter: Limiter, upstream: Upstream) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            limiter,
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
        charges: &[Charge],
    ) -> Option<(Decision, Held)> {
        let mut held = Held::default();
        let asked = self.ask(rules, route, charges, &mut held);
        let shared = match (route.batch, charges) {
            (Some(_), [charge]) => rules.batches.take(charge.key(), rules.timeout, asked).await,
            _ => asked.await,
        };
        match (shared, route.on_failure) {
            (Ok(decision), _) => Some((decision, held)),
            (Err(_), OnFailure::Open) => {
                let (decision, place) = route.judge_alone(charges);
                held.hold(place);
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
        charges: &[Charge],
        held: &mut Held,
    ) -> Result<Decision, Failure> {
        let since = Instant::now();
        let asked = route.remember_refusals.then(|| route.asked(charges));
        if let Some(refusal) = asked
            .as_ref()
            .and_then(|asked| rules.refusals.recall(asked, since))
        {
            return Ok(refusal);
        }
        let limiter = self.limiter.clone().timeout(rules.timeout);
        let answer;
        (answer, *held) = limiter.ask(charges).await;
        let decision = answer?;
        if let (Some(asked), Some(wait)) = (asked, route.sure_wait(&decision)) {
            let refusal = decision.clone();
            rules.refusals.remember(asked, refusal, since, wait);
        }
        Ok(decision)
    }
}
