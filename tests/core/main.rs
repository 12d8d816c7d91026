//! Tests of the pure core: every decision against a naive model, and every promise by its name.
//!
//! | file | owns |
//! |---|---|
//! | `call` | policies as raw numbers, and the worked example's instant |
//! | `oracle` | the model: the definitions, counted out, with no formula of the code under test |
//! | `store` | a key: it applies what the core decides as the shell does |
//! | `run` | a key beside its model, every step checked |
//! | `random` | random policies and steps that seek the edges |
//! | the rest | one promise each |
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

mod oracle;
mod random;
mod run;
mod sharing;
mod store;

mod bounds;
mod changes;
mod damage;
mod decisions;
mod drift;
mod examples;
mod extremes;
mod steps;

use support::call;
