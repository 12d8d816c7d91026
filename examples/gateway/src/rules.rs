//! The rules file: who calls, what is limited, and by how much. All of it is checked when it is
//! read, so that a request meets valid rules only.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use hmac::{Hmac, KeyInit, Mac};
use redis::Cmd;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::local::Local;

/// 2^53 - 1
const MAX_UNITS: u64 = 9_007_199_254_740_991;
const MAX_UNITS_EXACT: u64 = 10_000;
/// 100 years
const MAX_MS: u64 = 3_153_600_000_000;

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
    /// The name of the limit, in Redis' keys and header fields.
    name: String,
    method: String,
    path: String,
    policy: Policy,
    /// What a request takes of the limit.
    #[serde(default = "one")]
    cost: u64,
    on_failure: OnFailure,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    /// Nobody passes.
    Closed,
    /// Each gateway admits its share of the limit.
    Open,
}

fn one() -> u64 {
    1
}

/// A command of the module and its numbers.
#[derive(Deserialize)]
#[serde(tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Policy {
    Fixed {
        limit: u64,
        window_ms: u64,
    },
    Token {
        capacity: u64,
        refill: u64,
        period_ms: u64,
    },
    Slide {
        limit: u64,
        window_ms: u64,
        #[serde(default)]
        exact: bool,
    },
}

pub(crate) struct Rules {
    pub(crate) timeout: Duration,
    /// By the SHA-256 of an API key. A look-up by the key itself would take longer the more of a
    /// guess is right, and so tell the key bit by bit; how much of a guess' hash is right says
    /// nothing about the next guess. Nor does the file give keys away: they are long and random,
    /// so a plain hash will do.
    tenants: HashMap<[u8; 32], Tenant>,
    routes: HashMap<(Method, String), Route>,
}

#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) id: String,
    /// What stands for the tenant in key names. Whoever can list keys must not learn who calls, so
    /// it takes a secret: a hash alone can be found by trying names.
    tag: String,
}

pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) fallback: Fallback,
}

pub(crate) enum Fallback {
    Closed,
    Open(Local),
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
}

impl RulesFile {
    fn check(self, secret: &str) -> Result<Rules, String> {
        range("timeout_ms", self.timeout_ms, 60_000)?;
        let mut tenants = HashMap::new();
        for TenantRule {
            id,
            api_keys_sha256,
        } in self.tenants
        {
            let tag = tag(&id, secret)?;
            for api_key in api_keys_sha256 {
                let mut hash = [0; 32];
                hex::decode_to_slice(&api_key, &mut hash)
                    .map_err(|_| format!("tenant {id}: an API key's hash must be 64 hex digits"))?;
                let (id, tag) = (id.clone(), tag.clone());
                if tenants.insert(hash, Tenant { id, tag }).is_some() {
                    return Err(format!("API key {api_key} is there twice"));
                }
            }
        }
        let mut routes = HashMap::new();
        let mut names = Vec::new();
        for rule in self.routes {
            let shown = format!("route {}", rule.name);
            if names.contains(&rule.name) {
                return Err(format!("{shown} is there twice"));
            }
            names.push(rule.name.clone());
            let method = Method::try_from(rule.method.as_str())
                .map_err(|error| format!("{shown}: {error}"))?;
            let path = rule.path.clone();
            let route = rule
                .check(self.processes)
                .map_err(|error| format!("{shown}: {error}"))?;
            if routes.insert((method, path), route).is_some() {
                return Err(format!("{shown}: method and path are there twice"));
            }
        }
        Ok(Rules {
            timeout: Duration::from_millis(self.timeout_ms),
            tenants,
            routes,
        })
    }
}

impl RouteRule {
    fn check(self, processes: NonZeroU32) -> Result<Route, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err("a name has lower-case letters, digits and hyphens".to_owned());
        }
        range("cost", self.cost, MAX_UNITS)?;
        self.policy.check()?;
        let fallback = match self.on_failure {
            OnFailure::Closed => Fallback::Closed,
            OnFailure::Open => Fallback::Open(Local::share(&self.policy, self.cost, processes)),
        };
        Ok(Route {
            name: self.name,
            policy: self.policy,
            cost: self.cost,
            fallback,
        })
    }
}

impl Policy {
    fn check(&self) -> Result<(), String> {
        let most = match self {
            Self::Slide { exact: true, .. } => MAX_UNITS_EXACT,
            _ => MAX_UNITS,
        };
        match *self {
            Self::Fixed { limit, window_ms }
            | Self::Slide {
                limit, window_ms, ..
            } => {
                range("limit", limit, most)?;
                range("window_ms", window_ms, MAX_MS)
            }
            Self::Token {
                capacity,
                refill,
                period_ms,
            } => {
                range("capacity", capacity, MAX_UNITS)?;
                range("refill", refill, MAX_UNITS)?;
                range("period_ms", period_ms, MAX_MS)?;
                range("capacity * period_ms / refill", self.window_ms(), MAX_MS)
            }
        }
    }

    /// The most units at once.
    pub(crate) fn limit(&self) -> u64 {
        match *self {
            Self::Fixed { limit, .. } | Self::Slide { limit, .. } => limit,
            Self::Token { capacity, .. } => capacity,
        }
    }

    /// How many units come back in how many milliseconds.
    pub(crate) fn rate(&self) -> (u64, u64) {
        match *self {
            Self::Fixed { limit, window_ms }
            | Self::Slide {
                limit, window_ms, ..
            } => (limit, window_ms),
            Self::Token {
                refill, period_ms, ..
            } => (refill, period_ms),
        }
    }

    /// The time in which `limit` units come back: a window, or what it takes to fill a bucket.
    pub(crate) fn window_ms(&self) -> u64 {
        let (units, per_ms) = self.rate();
        let product = u128::from(self.limit()).saturating_mul(u128::from(per_ms));
        u64::try_from(product.div_ceil(u128::from(units.max(1)))).unwrap_or(u64::MAX)
    }

    /// What tells one stored state from another that this policy could not go on with. A limit can
    /// change on a live key, and so can a rate; with another algorithm, or another window of a
    /// sliding counter, the limiter needs a key of its own, which the old one can't disturb.
    fn version(&self) -> String {
        match self {
            Self::Fixed { .. } => "fixed".to_owned(),
            Self::Token { .. } => "token".to_owned(),
            Self::Slide { exact: true, .. } => "exact".to_owned(),
            Self::Slide { window_ms, .. } => format!("slide-{window_ms}"),
        }
    }
}

impl Route {
    /// The key of a tenant's limiter. The braces keep all of a tenant's in one slot of a cluster.
    pub(crate) fn key(&self, tenant: &Tenant) -> String {
        let (tag, name, version) = (&tenant.tag, &self.name, self.policy.version());
        format!("rl:{{{tag}}}:{name}:{version}")
    }

    /// The command that decides on a request.
    pub(crate) fn command(&self, key: &str) -> Cmd {
        let (name, numbers): (_, &[u64]) = match &self.policy {
            Policy::Fixed { limit, window_ms } => ("RL.FIXED", &[*limit, *window_ms]),
            Policy::Token {
                capacity,
                refill,
                period_ms,
            } => ("RL.TOKEN", &[*capacity, *refill, *period_ms]),
            Policy::Slide {
                limit, window_ms, ..
            } => ("RL.SLIDE", &[*limit, *window_ms]),
        };
        let mut command = redis::cmd(name);
        command.arg(key).arg(numbers).arg("COST").arg(self.cost);
        if matches!(self.policy, Policy::Slide { exact: true, .. }) {
            command.arg("EXACT");
        }
        command
    }
}

fn range(name: &str, value: u64, most: u64) -> Result<(), String> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} must be between 1 and {most}"))
    }
}

fn tag(id: &str, secret: &str) -> Result<String, String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .map_err(|error| format!("the secret: {error}"))?;
    mac.update(id.as_bytes());
    // 128 of its 256 bits: no two tenants share a key.
    let bytes = mac.finalize().into_bytes();
    let (bits, _) = bytes.split_at(16);
    Ok(hex::encode(bits))
}
