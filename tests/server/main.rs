//! Tests on a real server, one file per promise.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod allocations;
mod answers;
mod any;
mod clock;
mod cluster;
mod contexts;
mod described;
mod events;
mod failover;
mod figures;
mod keys;
mod loading;
mod memory;
mod peek;
mod persistence;
mod readme;
mod refusals;
mod replay;
mod replication;
mod soak;
