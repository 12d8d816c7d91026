//! The rules file: who calls, what is limited, and by how much. All of it is checked when it is
//! read, so that a request meets valid rules only.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use hmac::{Hmac, KeyInit, Mac};
use redis_rl_tower::{Charge, Limit, MAX_CHARGES, MAX_UNITS, Policy};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::batches::Batches;
use crate::local::Local;
use crate::refusals::Refusals;
use crate::route::{OnFailure, Per, Route, Shared, Taken};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    /// How many gateways share the limits: what each admits of them without Redis.
    processes: NonZeroU32,
    /// How long a request waits for Redis.
    timeout_ms: u64,
    tenants: Vec<TenantRule>,
    routes: Vec<RouteRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantRule {
    id: String,
    /// SHA-256 of each API key, in hexadecimal digits: `printf %s KEY | sha256sum`.
    api_keys_sha256: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteRule {
    method: String,
    path: String,
    /// All of them admit a request, or none is charged.
    limits: Vec<LimitRule>,
    on_failure: OnFailure,
    /// How many units are fetched at once and handed out by the gateway itself.
    batch: Option<u64>,
    /// Whether a refused caller is refused without asking Redis until its wait is over.
    #[serde(default = "yes")]
    remember_refusals: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitRule {
    /// The name of the limit, in Redis' keys and header fields. Routes that give the same name
    /// share the limit.
    name: String,
    #[serde(default)]
    per: Per,
    policy: Policy,
    /// What a request takes of the limit.
    #[serde(default = "one")]
    cost: u64,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

pub(crate) struct Rules {
    pub(crate) timeout: Duration,
    /// Refusals and units by these rules: with other rules, they are forgotten.
    pub(crate) refusals: Refusals,
    pub(crate) batches: Batches,
    tags: Tags,
    /// By the SHA-256 of an API key. A look-up by the key itself would take longer the more of a
    /// guess is right, and so tell the key bit by bit; how much of a guess' hash is right says
    /// nothing about the next guess. Nor does the file give keys away: they are long and random,
    /// so a plain hash will do.
    tenants: HashMap<[u8; 32], Tenant>,
    routes: HashMap<(Method, String), Route>,
}

#[derive(Clone)]
pub(crate) struct Tenant {
    tag: String,
}

impl Rules {
    pub(crate) fn parse(text: &[u8], secret: &str) -> Result<Self, String> {
        serde_json::from_slice::<RulesFile>(text)
            .map_err(|error| error.to_string())
            .and_then(|file| file.check(secret))
    }

    /// The caller, by the one API key that the request carries.
    pub(crate) fn tenant(&self, headers: &HeaderMap) -> Option<&Tenant> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let (scheme, api_key) = value.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("Bearer") {
            return None;
        }
        self.tenants
            .get::<[u8; 32]>(&Sha256::digest(api_key).into())
    }

    pub(crate) fn route(&self, method: &Method, path: &str) -> Option<&Route> {
        self.routes.get(&(method.clone(), path.to_owned()))
    }

    /// What a request is charged for, in the order of the route's limits.
    pub(crate) fn charges(&self, route: &Route, tenant: &Tenant, address: IpAddr) -> Vec<Charge> {
        let charge = |taken: &Taken| {
            let limit = &taken.of.limit;
            let charge = match taken.of.per {
                Per::Tenant => limit.of(&tenant.tag),
                Per::Address => limit.of_part(&tenant.tag, &self.tags.of_address(address)),
            };
            match route.batch {
                Some(units) => charge.upto(units),
                None => charge.cost(taken.cost),
            }
        };
        route.taken.iter().map(charge).collect()
    }
}

impl RulesFile {
    fn check(self, secret: &str) -> Result<Rules, String> {
        range("timeout_ms", self.timeout_ms, 60_000)?;
        let tags = Tags::new(secret)?;
        let tenants = tenants(self.tenants, &tags)?;
        let limits = limits(&self.routes, self.processes)?;
        let mut routes = HashMap::new();
        for rule in &self.routes {
            let shown = format!("route {} {}", rule.method, rule.path);
            let error = |error| format!("{shown}: {error}");
            let method = Method::try_from(rule.method.as_str());
            let method = method.map_err(|reason| error(reason.to_string()))?;
            let route = rule.check(&limits).map_err(error)?;
            if routes.insert((method, rule.path.clone()), route).is_some() {
                return Err(format!("{shown} is there twice"));
            }
        }
        Ok(Rules {
            timeout: Duration::from_millis(self.timeout_ms),
            refusals: Refusals::new(),
            batches: Batches::new(),
            tags,
            tenants,
            routes,
        })
    }
}

fn tenants(rules: Vec<TenantRule>, tags: &Tags) -> Result<HashMap<[u8; 32], Tenant>, String> {
    let mut tenants = HashMap::new();
    for TenantRule {
        id,
        api_keys_sha256,
    } in rules
    {
        let tag = tags.of(id.as_bytes());
        for api_key in api_keys_sha256 {
            let mut hash = [0; 32];
            hex::decode_to_slice(&api_key, &mut hash)
                .map_err(|_| format!("tenant {id}: an API key's hash must be 64 hex digits"))?;
            let tag = tag.clone();
            if tenants.insert(hash, Tenant { tag }).is_some() {
                return Err(format!("API key {api_key} is there twice"));
            }
        }
    }
    Ok(tenants)
}

/// The limits by name, each once, however many routes share it.
fn limits(
    routes: &[RouteRule],
    processes: NonZeroU32,
) -> Result<HashMap<&str, Arc<Shared>>, String> {
    // Each with the most that a request takes of it.
    let mut named: HashMap<&str, (&LimitRule, Limit, u64)> = HashMap::new();
    for rule in routes.iter().flat_map(|route| &route.limits) {
        let shown = format!("limit {}", rule.name);
        let limit = rule.check().map_err(|error| format!("{shown}: {error}"))?;
        match named.entry(&rule.name) {
            Entry::Vacant(entry) => {
                entry.insert((rule, limit, rule.cost));
            }
            Entry::Occupied(mut entry) => {
                let (first, _, most) = entry.get_mut();
                if (first.per, first.policy) != (rule.per, rule.policy) {
                    return Err(format!("{shown} is not the same on all its routes"));
                }
                *most = rule.cost.max(*most);
            }
        }
    }
    let shared = |(name, (rule, limit, most)): (_, (&LimitRule, _, _))| {
        let shared = Shared {
            limit,
            per: rule.per,
            local: Local::share(&rule.policy, most, processes),
        };
        (name, Arc::new(shared))
    };
    Ok(named.into_iter().map(shared).collect())
}

impl LimitRule {
    fn check(&self) -> Result<Limit, String> {
        range("cost", self.cost, MAX_UNITS)?;
        if self.policy.is_lease() && self.cost != 1 {
            return Err("a lease has no cost".to_owned());
        }
        Limit::new(&self.name, self.policy).map_err(|error| error.to_string())
    }
}

impl RouteRule {
    fn check(&self, limits: &HashMap<&str, Arc<Shared>>) -> Result<Route, String> {
        if !(1..=MAX_CHARGES).contains(&self.limits.len()) {
            return Err(format!("a route has 1 to {MAX_CHARGES} limits"));
        }
        let mut taken: Vec<Taken> = Vec::new();
        for rule in &self.limits {
            if taken.iter().any(|taken| taken.of.limit.name() == rule.name) {
                return Err(format!("limit {} is there twice", rule.name));
            }
            let shared = limits.get(&*rule.name).ok_or("a limit is not known")?;
            taken.push(Taken {
                of: Arc::clone(shared),
                cost: rule.cost,
            });
        }
        let policies = taken.iter().map(|taken| taken.of.limit.policy());
        let leases = policies.filter(|policy| policy.is_lease()).count();
        if leases > 1 {
            return Err("a route has one lease at most".to_owned());
        }
        if let Some(batch) = self.batch {
            let ([Taken { of, cost: 1 }], 0) = (&*taken, leases) else {
                return Err(
                    "batches need a single limit, which is no lease, and a cost of 1".to_owned(),
                );
            };
            range("batch", batch, of.limit.policy().limit())?;
        }
        Ok(Route {
            taken,
            on_failure: self.on_failure,
            batch: self.batch,
            remember_refusals: self.remember_refusals,
        })
    }
}

fn range(name: &str, value: u64, most: u64) -> Result<(), String> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} must be between 1 and {most}"))
    }
}

/// What stands for callers in key names. A reader of the key names must not learn who calls, so it
/// takes a secret: a hash alone can be found by trying names.
struct Tags(Hmac<Sha256>);

impl Tags {
    fn new(secret: &str) -> Result<Self, String> {
        let mac = Hmac::new_from_slice(secret.as_bytes());
        mac.map(Self)
            .map_err(|error| format!("the secret: {error}"))
    }

    fn of(&self, who: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(who);
        // 128 of its 256 bits: no two tenants share a key.
        let bytes = mac.finalize().into_bytes();
        let (bits, _) = bytes.split_at(16);
        hex::encode(bits)
    }

    /// A subscriber of IPv6 has 2^64 addresses, so the network stands for all of them.
    fn of_address(&self, address: IpAddr) -> String {
        match address.to_canonical() {
            IpAddr::V4(address) => self.of(&address.octets()),
            IpAddr::V6(address) => {
                let octets = address.octets();
                let (network, _) = octets.split_at(8);
                self.of(network)
            }
        }
    }
}
