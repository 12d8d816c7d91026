//! What a limiter decides on a request, and where the request's limits stand then.

use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

/// Whether a request may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if all limits admitted it, and have been charged. Else none has been.
    pub allowed: bool,
    /// Milliseconds until the same request would be admitted; none if it never will be.
    pub retry_after_ms: Option<u64>,
    /// One per charge, in order. None if they are not known: from a limiter that sees only a part of
    /// the requests.
    pub standings: Option<Vec<Standing>>,
}

/// The five integers of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// 0: this limit refuses. Otherwise 1, or the number of units that were taken.
    pub allowed: u64,
    /// The limit or capacity.
    pub limit: u64,
    /// Units that could be taken now.
    pub remaining: u64,
    /// Milliseconds until the same request would be admitted; none if it never will be.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds until nothing is used any more.
    pub reset_after_ms: u64,
}

impl Decision {
    /// Of a limiter that doesn't know where the limits stand.
    #[must_use]
    pub fn alone(allowed: bool, retry_after_ms: Option<u64>) -> Self {
        Self {
            allowed,
            retry_after_ms,
            standings: None,
        }
    }

    /// Of a single limit.
    #[must_use]
    pub fn of_one(standing: Standing) -> Self {
        Self {
            allowed: standing.allowed > 0,
            retry_after_ms: standing.retry_after_ms,
            standings: Some(vec![standing]),
        }
    }

    /// The same, told later.
    #[must_use]
    pub fn after(&self, elapsed: Duration) -> Self {
        let standings = self.standings.as_deref();
        let later = |each: &[Standing]| each.iter().map(|one| one.after(elapsed)).collect();
        Self {
            allowed: self.allowed,
            retry_after_ms: self.retry_after_ms.map(|ms| left(ms, elapsed)),
            standings: standings.map(later),
        }
    }
}

impl Standing {
    /// The same, told later: less is left of its waits, and what remains is as it was.
    #[must_use]
    pub fn after(&self, elapsed: Duration) -> Self {
        Self {
            retry_after_ms: self.retry_after_ms.map(|ms| left(ms, elapsed)),
            reset_after_ms: left(self.reset_after_ms, elapsed),
            ..self.clone()
        }
    }
}

/// The reply of `RL.ALL`, or that of a command on one key.
impl FromRedisValue for Decision {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        if matches!(&reply, Value::Array(items) if items.len() == 5) {
            return Standing::from_redis_value(reply).map(Self::of_one);
        }
        let (allowed, retry_after_ms, standings) = FromRedisValue::from_redis_value(reply)?;
        Ok(Self {
            allowed,
            retry_after_ms: wait(retry_after_ms),
            standings: Some(standings),
        })
    }
}

impl FromRedisValue for Standing {
    fn from_redis_value(reply: Value) -> Result<Self, ParsingError> {
        let (allowed, limit, remaining, retry_after_ms, reset_after_ms) =
            FromRedisValue::from_redis_value(reply)?;
        Ok(Self {
            allowed,
            limit,
            remaining,
            retry_after_ms: wait(retry_after_ms),
            reset_after_ms,
        })
    }
}

/// What is left of a wait, rounded up to a whole millisecond.
fn left(ms: u64, elapsed: Duration) -> u64 {
    ms.saturating_sub(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// −1 means never.
fn wait(ms: i64) -> Option<u64> {
    u64::try_from(ms).ok()
}
