//! A route and its limits: what a request takes of each.

use std::sync::Arc;
use std::time::Duration;

use redis_rl_tower::{Charge, Decision, Limit};
use serde::Deserialize;

use crate::local::{Local, Place};
use crate::refusals::Asked;

pub(crate) struct Route {
    pub(crate) taken: Vec<Taken>,
    pub(crate) on_failure: OnFailure,
    /// How many units are fetched at once, of the one limit.
    pub(crate) batch: Option<u64>,
    pub(crate) remember_refusals: bool,
}

/// What a request takes of a limit.
pub(crate) struct Taken {
    pub(crate) of: Arc<Shared>,
    pub(crate) cost: u64,
}

/// Routes with a limit of the same name share it.
pub(crate) struct Shared {
    pub(crate) limit: Limit,
    pub(crate) per: Per,
    /// This process' share of it, for routes that fail open.
    pub(crate) local: Local,
}

/// Who has a limit of their own.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Per {
    #[default]
    Tenant,
    /// Each address that a tenant's requests come from. That of the connection: behind a proxy, it
    /// is the proxy's.
    Address,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    /// Nobody passes.
    Closed,
    /// Each gateway admits its share of the limits.
    Open,
}

impl Route {
    /// What a request asks for.
    pub(crate) fn asked(&self, charges: &[Charge]) -> Asked {
        let keys = charges.iter().map(|charge| charge.key().to_owned());
        keys.zip(self.taken.iter().map(|taken| taken.cost))
            .collect()
    }

    /// How long the same request will be refused for certain. A lease may be given back at any
    /// moment, and where no wait helps, only other rules could.
    pub(crate) fn sure_wait(&self, decision: &Decision) -> Option<Duration> {
        if decision.allowed || decision.retry_after_ms.is_none() {
            return None;
        }
        let standings = self.taken.iter().zip(decision.standings.as_deref()?);
        let refusing = standings.filter(|(taken, standing)| {
            !taken.of.limit.policy().is_lease() && standing.allowed == 0
        });
        let waits = refusing.filter_map(|(_, standing)| standing.retry_after_ms);
        waits.max().map(Duration::from_millis)
    }

    /// What this process decides by itself, and the place that is taken then. The limits are asked
    /// in order, and those before one that refuses stay charged: the shares are only estimates.
    pub(crate) fn judge_alone(&self, charges: &[Charge]) -> (Decision, Option<Place>) {
        let mut place = None;
        for (taken, charge) in self.taken.iter().zip(charges) {
            let (decision, another) = taken.of.local.ask(charge.key(), taken.cost);
            if !decision.allowed {
                return (decision, None);
            }
            place = place.or(another);
        }
        (Decision::alone(true, Some(0)), place)
    }
}
