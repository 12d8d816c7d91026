//! A limit of any kind and what a call asks of it, as raw numbers.

use redis_rl::policy::{Hold, LeasePolicy};
use redis_rl::request::{AnyCall, Call, LeaseCall};

use crate::call::Policy;
use crate::store::{span, units, valid};
use crate::word::Word;

/// A call on leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub limit: u64,
    pub ttl_ms: u64,
    pub id: [u8; 2],
    pub hold: Hold,
}

impl Lease {
    pub fn new(limit: u64, ttl_ms: u64, id: u16, hold: Hold) -> Self {
        Self {
            limit,
            ttl_ms,
            id: id.to_be_bytes(),
            hold,
        }
    }

    /// As the core takes it.
    pub fn call(&self) -> LeaseCall<'_> {
        LeaseCall {
            policy: LeasePolicy::new(units(self.limit), span(self.ttl_ms)).unwrap(),
            id: &self.id,
            hold: self.hold,
        }
    }
}

pub fn take(limit: u64, ttl_ms: u64, id: u16) -> Lease {
    Lease::new(limit, ttl_ms, id, Hold::Take)
}

pub fn renew(limit: u64, ttl_ms: u64, id: u16) -> Lease {
    Lease::new(limit, ttl_ms, id, Hold::Renew)
}

pub fn release(limit: u64, ttl_ms: u64, id: u16) -> Lease {
    Lease::new(limit, ttl_ms, id, Hold::Release)
}

/// One limit of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Units(Policy, Word),
    Lease(Lease),
}

impl Limit {
    /// As the core takes it.
    pub fn call(&self) -> AnyCall<'_> {
        match self {
            Self::Units(policy, word) => AnyCall::Units(Call {
                policy: valid(*policy),
                charge: word.charge(),
            }),
            Self::Lease(lease) => AnyCall::Lease(lease.call()),
        }
    }

    /// Whether it can stand in the way of others.
    pub fn can_refuse(&self) -> bool {
        match self {
            Self::Units(_, word) => matches!(word, Word::Cost(_) | Word::UpTo(_)),
            Self::Lease(lease) => lease.hold != Hold::Release,
        }
    }
}
