//! The layer in front of services in this process, with the module in a real server for each test.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod app;
mod failures;
mod fake;
mod grpc;
mod leases;
mod requests;
