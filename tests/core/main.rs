//! Tests of the pure core: every decision against a naive model, and every promise by its name.
//!
//! | file | owns |
//! |---|---|
//! | `oracle` | the model: the definitions, counted out, with no formula of the code under test |
//! | `holders` | the model of leases: a list of who holds one until when |
//! | `key` | a key in memory: it applies what the core decides as the shell does |
//! | `all` | several of them in one call, and what holds for any such call |
//! | `store` | a key, spoken to in raw numbers |
//! | `word` | `COST`, `FORCE`, `UPTO` and `REFUND` as raw numbers |
//! | `limit` | a call on leases, and one of any kind, as raw numbers |
//! | `run` | a key beside its model, every step checked |
//! | `random` | random policies and steps that seek the edges |
//! | `bounds` | how much a client can get in any span, counted from its admitted calls |
//! | `changes` | a policy may change on a live key |
//! | `damage` | state that no command wrote is an error or a decision in range, never a panic |
//! | `decisions` | every step of every random walk is decided as the model decides |
//! | `drift` | after a million calls the state is what the sums of the costs say |
//! | `every` | every sequence of a few calls over tiny policies is decided as the model decides |
//! | `examples` | worked examples: replies, stored texts and expiries, computed by hand |
//! | `extremes` | the ends of every range: limits, spans, costs, rates and clocks |
//! | `leases` | what `RL.LEASE` promises |
//! | `settle` | what `UPTO`, `REFUND` and `FORCE` promise, and a million calls of all four words |
//! | `several` | what `RL.ALL` promises: all are charged, or none is |
//! | `sharing` | what it costs to split a limit over buckets or callers, as the documents say |
//! | `steps` | clocks that jitter, step back and step forward |
//!
//! Policies as raw numbers (`call`) come from the crate `support`, which other tests use too.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod all;
mod holders;
mod key;
mod limit;
mod oracle;
mod random;
mod run;
mod store;
mod word;

mod bounds;
mod changes;
mod damage;
mod decisions;
mod drift;
mod every;
mod examples;
mod extremes;
mod leases;
mod settle;
mod several;
mod sharing;
mod steps;

use support::call;
