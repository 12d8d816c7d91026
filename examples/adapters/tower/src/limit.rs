//! A limit, what a request takes of it, and the commands that say so.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, PercentEncode, utf8_percent_encode};
use redis::Cmd;

use crate::policy::{InvalidLimit, MAX_UNITS, Policy};

/// The most charges of a request: `RL.ALL` takes no more.
pub const MAX_CHARGES: usize = 32;

/// What has a meaning in a key. With these encoded, no two callers share a key, and no caller ends
/// the hash tag.
const SPECIAL: &AsciiSet = &CONTROLS.add(b'{').add(b'}').add(b':').add(b'%');

/// A policy with a name, which is a part of Redis' keys and is told to callers.
#[derive(Clone, Debug)]
pub struct Limit {
    name: Arc<str>,
    policy: Policy,
}

/// One key of a limit, and what a request takes of it: 1, unless said otherwise.
#[derive(Clone, Debug)]
pub struct Charge {
    limit: Limit,
    key: String,
    take: Take,
}

#[derive(Clone, Copy, Debug)]
enum Take {
    Cost(u64),
    Upto(u64),
}

/// What is done with a lease.
#[derive(Clone, Copy)]
enum Lease<'a> {
    Take(&'a str),
    Release(&'a str),
}

impl Limit {
    /// # Errors
    ///
    /// If the name has other characters than lower-case letters, digits and hyphens, or a number of
    /// the policy is out of its range.
    pub fn new(name: &str, policy: Policy) -> Result<Self, InvalidLimit> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            let reason = "a name has lower-case letters, digits and hyphens";
            return Err(InvalidLimit::new(reason));
        }
        policy.check()?;
        Ok(Self {
            name: name.into(),
            policy,
        })
    }

    /// As it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As it was given.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The limit of one caller: a user, a tenant, an address. Callers must not be able to choose who
    /// they are.
    ///
    /// The key is `rl:{caller}:name:version`. The braces keep all limits of a caller in one slot of
    /// a cluster. In the caller, `{`, `}`, `:`, `%`, control and non-ASCII characters are
    /// percent-encoded. An empty caller is `%`, as empty braces are no hash tag.
    #[must_use]
    pub fn of(&self, caller: &str) -> Charge {
        let (name, version) = (&self.name, self.policy.version());
        self.charge(format!("rl:{}:{name}:{version}", tag(caller)))
    }

    /// The limit of a part of a caller: a user or an address of a tenant. It can be asked in one
    /// step with limits of the caller.
    ///
    /// The key is `rl:{caller}:name:part:version`, and the part is percent-encoded like the caller.
    #[must_use]
    pub fn of_part(&self, caller: &str, part: &str) -> Charge {
        let (name, version) = (&self.name, self.policy.version());
        let (tag, part) = (tag(caller), encode(part));
        self.charge(format!("rl:{tag}:{name}:{part}:{version}"))
    }

    fn charge(&self, key: String) -> Charge {
        Charge {
            limit: self.clone(),
            key,
            take: Take::Cost(1),
        }
    }
}

impl Charge {
    /// Takes so many units, all or none: 1 to 2^53 - 1. Without meaning for a lease.
    #[must_use]
    pub fn cost(self, units: u64) -> Self {
        let take = Take::Cost(units);
        Self { take, ..self }
    }

    /// Takes as many units as there are, at most so many: 1 to 2^53 - 1. The request must have no
    /// other charge. [`Standing::allowed`](crate::Standing::allowed) tells how many. Without meaning
    /// for a lease.
    #[must_use]
    pub fn upto(self, units: u64) -> Self {
        let take = Take::Upto(units);
        Self { take, ..self }
    }

    /// In Redis.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// That it is a charge on.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The time of the lease that a request takes, if it takes one.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self.limit.policy {
            Policy::Lease { ttl_ms, .. } => Some(Duration::from_millis(ttl_ms)),
            _ => None,
        }
    }

    fn write(&self, lease: Lease<'_>, command: &mut Cmd) {
        let policy = &self.limit.policy;
        let take = |command: &mut Cmd| {
            match (policy.is_lease(), lease, self.take) {
                (true, Lease::Take(id), _) => command.arg(id),
                (true, Lease::Release(id), _) => command.arg(id).arg("RELEASE"),
                (false, _, Take::Cost(units)) => command.arg("COST").arg(units),
                (false, _, Take::Upto(units)) => command.arg("UPTO").arg(units),
            };
        };
        policy.write(take, command);
    }
}

fn tag(caller: &str) -> String {
    match caller {
        "" => "{%}".to_owned(),
        _ => format!("{{{}}}", encode(caller)),
    }
}

fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, SPECIAL)
}

/// Checks what the server would answer with an error, whatever its keys hold.
pub(crate) fn check(charges: &[Charge]) -> Result<(), &'static str> {
    if !(1..=MAX_CHARGES).contains(&charges.len()) {
        return Err("a request has 1 to 32 charges");
    }
    let mut keys = HashSet::new();
    for charge in charges {
        if !keys.insert(&charge.key) {
            return Err("each charge needs a key of its own");
        }
        let (units, alone) = match charge.take {
            _ if charge.limit.policy.is_lease() => continue,
            Take::Cost(units) => (units, false),
            Take::Upto(units) => (units, true),
        };
        if !(1..=MAX_UNITS).contains(&units) {
            return Err("units must be between 1 and 2^53 - 1");
        }
        if alone && charges.len() > 1 {
            return Err("`upto` must be the only charge");
        }
    }
    Ok(())
}

/// The command that decides on a request. Leases are taken under `id`.
pub(crate) fn command(charges: &[Charge], id: &str) -> Cmd {
    build(charges, Lease::Take(id))
}

/// The command that gives leases back which were taken under `id`.
pub(crate) fn release(leases: &[Charge], id: &str) -> Cmd {
    build(leases, Lease::Release(id))
}

/// The command of the one limit, or one for all.
fn build(charges: &[Charge], lease: Lease<'_>) -> Cmd {
    if let [charge] = charges {
        let mut command = redis::cmd(&format!("RL.{}", charge.limit.policy.name()));
        charge.write(lease, command.arg(&charge.key));
        return command;
    }
    let mut command = redis::cmd("RL.ALL");
    command.arg(charges.len());
    for charge in charges {
        command.arg(&charge.key);
    }
    for charge in charges {
        charge.write(lease, command.arg(charge.limit.policy.name()));
    }
    command
}
