//! The example application over HTTP: real processes, with a real server behind them.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod answers;
mod batches;
mod callers;
mod demo;
mod failures;
mod gateway;
mod leases;
mod proxy;
mod refusals;
mod reload;
mod several;
mod upstream;
