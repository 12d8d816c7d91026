//! Rate limiting for Redis and Valkey as native commands.
//!
//! This crate is a server module. Each command reads the server's clock, checks the key's state,
//! decides and updates, in one atomic step, in whole numbers only:
//!
//! ```text
//! RL.FIXED key limit window_ms                 [COST n]            fixed window
//! RL.TOKEN key capacity refill period_ms       [COST n]            token bucket
//! RL.SLIDE key limit window_ms                 [COST n] [EXACT]    sliding window, or log
//! RL.PEEK  key FIXED|TOKEN|SLIDE …                                 the answer, with nothing taken
//! ```
//!
//! # The reply
//!
//! Always five integers, a [`Decision`](decision::Decision): `allowed`, `limit`, `remaining`,
//! `retry_after_ms`, `reset_after_ms`. Waits are the least whole milliseconds for which the promise
//! holds: after exactly `retry_after_ms` the same call is admitted, one sooner it is not.
//!
//! # How it is built
//!
//! Two halves. The core knows no Redis: every algorithm is a function from a policy, the stored
//! state, an instant and a cost to a decision and the next state.
//!
//! - [`request`]: argument bytes to a [`policy`] and a cost
//! - [`fixed`], [`token`], [`slide`], [`exact`]: the algorithms, each with `decide` and `peek`
//! - [`decision`], [`outcome`]: what they answer, and what is to be stored
//! - [`state`]: stored text to state and back; [`decimal`]: its integers
//! - [`clock`]: instants, and clocks that run backwards
//! - [`error`]: every reply text
//!
//! The shell, `redis`, knows no algorithm: it reads keys, runs the core, writes, replicates and
//! replies. Only it names the server's API, and only it has unsafe code.
//!
//! One call, as the shell makes it:
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::state::{State, Stored};
//! use redis_rl::{request, token};
//!
//! // RL.TOKEN key 100 10 1000 COST 30, on a key that does not exist.
//! let args = ["100", "10", "1000", "COST", "30"].map(str::as_bytes);
//! let call = request::token(args.into_iter())?;
//! let now = Timestamp::from_us(1_779_331_200_000_000).expect("a clock in range");
//! let outcome = token::decide(&call.policy, None, now, call.cost)?;
//! assert_eq!(outcome.decision.reply(), [1, 100, 70, 0, 3_000]);
//!
//! // What is stored then, and the same call once more: 30 of 70 leave.
//! let write = outcome.write.expect("an admitted call stores the bucket");
//! let text = write.state.encode();
//! assert_eq!(text.as_slice(), b"T1:70000000:1000000:1779331200000000");
//! let stored = Stored { text: &text, expire_at_ms: write.expire_at_ms };
//! let outcome = token::decide(&call.policy, Some(stored), now, call.cost)?;
//! assert_eq!(outcome.decision.reply(), [1, 100, 40, 0, 6_000]);
//! # Ok::<(), redis_rl::error::Error>(())
//! ```
//!
//! A fifth algorithm is a new file beside these, an entry in the shell's table, and its tests.
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
