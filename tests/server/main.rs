//! Tests on a real server, one file per promise.
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

mod any;
mod clock;
mod contexts;
mod keys;
mod loading;
mod readme;
mod refusals;
mod replay;
#[allow(dead_code, reason = "each promise uses what it needs")]
mod support;
