//! What a limiter decides on a request, and where the request's limits stand then.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// When the same request would be admitted; none if it never will.
    pub(crate) retry_after_ms: Option<u64>,
    /// One per limit of the route, in order. None of a limiter that knows only a part of the
    /// requests.
    pub(crate) standings: Option<Vec<Standing>>,
}

/// The five integers of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) allowed: u64,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) reset_after_ms: u64,
}

impl Decision {
    /// Of a limiter that doesn't know where the limits stand.
    pub(crate) fn alone(allowed: bool, retry_after_ms: Option<u64>) -> Self {
        Self {
            allowed,
            retry_after_ms,
            standings: None,
        }
    }

    /// Of a route with one limit.
    pub(crate) fn of_one(standing: Standing) -> Self {
        Self {
            allowed: standing.allowed > 0,
            retry_after_ms: standing.retry_after_ms,
            standings: Some(vec![standing]),
        }
    }

    /// The same, told later.
    pub(crate) fn after(&self, elapsed: Duration) -> Self {
        let standings = self.standings.as_deref();
        let later = |each: &[Standing]| each.iter().map(|one| one.after(elapsed)).collect();
        Self {
            allowed: self.allowed,
            retry_after_ms: self.retry_after_ms.map(|ms| left(ms, elapsed)),
            standings: standings.map(later),
        }
    }

    /// The reply of `RL.ALL`.
    pub(crate) fn of_all((allowed, retry_after_ms, each): (bool, i64, Vec<[i64; 5]>)) -> Self {
        Self {
            allowed,
            retry_after_ms: wait(retry_after_ms),
            standings: Some(each.into_iter().map(Standing::from).collect()),
        }
    }
}

impl From<[i64; 5]> for Standing {
    fn from([allowed, limit, remaining, retry_after_ms, reset_after_ms]: [i64; 5]) -> Self {
        let count = |number| u64::try_from(number).unwrap_or(0);
        Self {
            allowed: count(allowed),
            limit: count(limit),
            remaining: count(remaining),
            retry_after_ms: wait(retry_after_ms),
            reset_after_ms: count(reset_after_ms),
        }
    }
}

impl Standing {
    /// The same, told later: less is left of its waits, and what remains is as it was.
    pub(crate) fn after(&self, elapsed: Duration) -> Self {
        Self {
            retry_after_ms: self.retry_after_ms.map(|ms| left(ms, elapsed)),
            reset_after_ms: left(self.reset_after_ms, elapsed),
            ..self.clone()
        }
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
