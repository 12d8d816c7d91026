//! A route and its limits: what a request takes of each, and the commands that say so.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use serde::Deserialize;

use crate::decision::Decision;
use crate::local::{Local, Place};
use crate::policy::{Policy, Take};
use crate::refusals::Asked;

pub(crate) struct Route {
    pub(crate) charges: Vec<Charge>,
    pub(crate) on_failure: OnFailure,
    /// How many units are fetched at once, of the one limit.
    pub(crate) batch: Option<u64>,
    pub(crate) remember_refusals: bool,
}

/// What a request takes of a limit.
pub(crate) struct Charge {
    pub(crate) limit: Arc<Limit>,
    pub(crate) cost: u64,
}

impl Charge {
    /// The time of the lease that a request takes, if it takes one.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self.limit.policy {
            Policy::Lease { ttl_ms, .. } => Some(Duration::from_millis(ttl_ms)),
            _ => None,
        }
    }

    fn take<'a>(&self, id: &'a str) -> Take<'a> {
        match self.limit.policy {
            Policy::Lease { .. } => Take::Lease(id),
            _ => Take::Cost(self.cost),
        }
    }
}

/// Routes with a limit of the same name share it.
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) per: Per,
    pub(crate) policy: Policy,
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
    /// Whether a request takes a lease, and so needs an id.
    pub(crate) fn has_lease(&self) -> bool {
        self.charges.iter().any(|charge| charge.lease().is_some())
    }

    /// The command that decides on a request: that of its one limit, or one for all.
    pub(crate) fn command(&self, keys: &[String], id: &str) -> Cmd {
        if let ([charge], [key]) = (&*self.charges, keys) {
            let take = self.batch.map_or(charge.take(id), Take::Upto);
            let policy = &charge.limit.policy;
            let mut command = redis::cmd(&format!("RL.{}", policy.name()));
            policy.write(take, command.arg(key));
            return command;
        }
        let mut command = redis::cmd("RL.ALL");
        command.arg(keys.len()).arg(keys);
        for charge in &self.charges {
            let policy = &charge.limit.policy;
            policy.write(charge.take(id), command.arg(policy.name()));
        }
        command
    }

    /// The lease that a request takes, if it takes one: its key, the command that gives it back, and
    /// its time.
    pub(crate) fn lease<'a>(
        &self,
        keys: &'a [String],
        id: &str,
    ) -> Option<(&'a str, Cmd, Duration)> {
        let mut charges = self.charges.iter().zip(keys);
        charges.find_map(|(charge, key)| {
            let ttl = charge.lease()?;
            let mut release = redis::cmd("RL.LEASE");
            charge.limit.policy.write(charge.take(id), release.arg(key));
            release.arg("RELEASE");
            Some((key.as_str(), release, ttl))
        })
    }

    /// What a request asks for.
    pub(crate) fn asked(&self, keys: &[String]) -> Asked {
        let costs = self.charges.iter().map(|charge| charge.cost);
        keys.iter().cloned().zip(costs).collect()
    }

    /// How long the same request will be refused for certain. A lease may be given back at any
    /// moment, and where no wait helps, only other rules could.
    pub(crate) fn sure_wait(&self, decision: &Decision) -> Option<Duration> {
        if decision.allowed || decision.retry_after_ms.is_none() {
            return None;
        }
        let standings = self.charges.iter().zip(decision.standings.as_deref()?);
        let refusing = standings
            .filter(|(charge, standing)| charge.lease().is_none() && standing.allowed == 0);
        let waits = refusing.filter_map(|(_, standing)| standing.retry_after_ms);
        waits.max().map(Duration::from_millis)
    }

    /// What this process decides by itself, and the place that is taken then. The limits are asked
    /// in order, and those before one that refuses stay charged: the shares are only estimates.
    pub(crate) fn judge_alone(&self, keys: &[String]) -> (Decision, Option<Place>) {
        let mut taken = None;
        for (charge, key) in self.charges.iter().zip(keys) {
            let (decision, place) = charge.limit.local.ask(key, charge.cost);
            if !decision.allowed {
                return (decision, None);
            }
            taken = taken.or(place);
        }
        (Decision::alone(true, Some(0)), taken)
    }
}
