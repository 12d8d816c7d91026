//! Rate limiting for Redis and Valkey as native commands.
//!
//! This crate is a server module: `RL.FIXED`, `RL.TOKEN` and `RL.SLIDE` each read the server's
//! clock, check the key's state, decide and update, in one atomic command.
//!
//! It has two halves. The core knows no Redis: every algorithm is a function from a policy, the
//! stored state, an instant and a cost to a decision and the next state.
//!
//! - [`request`]: argument bytes to a [`policy`] and a cost
//! - [`fixed`], [`token`], [`slide`], [`exact`]: the algorithms
//! - [`decision`], [`outcome`]: what they answer, and what is to be stored
//! - [`state`]: stored text to state and back; [`decimal`]: its integers
//! - [`clock`]: instants, and clocks that run backwards
//! - [`error`]: every reply text
//!
//! The shell, `redis`, knows no algorithm: it reads keys, runs the core, writes, replicates and
//! replies. Only it names the server's API, and only it has unsafe code.
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test may fail"
    )
)]

pub mod clock;
pub mod decimal;
pub mod decision;
pub mod error;
pub mod exact;
pub mod fixed;
pub mod outcome;
pub mod policy;
mod redis;
pub mod request;
pub mod slide;
pub mod state;
pub mod token;
mod wide;
