//! Rate limiting for Redis and Valkey as native commands.
//!
//! This crate is a server module. Each command reads the server's clock, checks the key's state,
//! decides and updates, in one atomic step, in whole numbers only:
//!
//! ```text
//! RL.FIXED key limit window_ms            fixed window
//! RL.TOKEN key capacity refill period_ms  token bucket
//! RL.SLIDE key limit window_ms [EXACT]    sliding window, or log
//! RL.LEASE key limit ttl_ms id            so many leases at the same time
//! RL.ALL   numkeys key … policy …         several of these in one step, all or none
//! RL.PEEK  key policy                     the answer, with nothing taken
//! ```
//!
//! The first three take `[COST n [FORCE] | UPTO n | REFUND n]`: so many units or none, so many in any
//! case (not with `EXACT`), as many as there are, or some are given back. `RL.LEASE` takes
//! `[RENEW | RELEASE]`. A policy is the name of a command without `RL.`, and the words after its key;
//! in `RL.ALL` without `UPTO`, in `RL.PEEK` with `COST`, `UPTO` and `EXACT` alone.
//!
//! # The reply
//!
//! Five integers for each limit, a [`Decision`](decision::Decision): `allowed`, `limit`, `remaining`,
//! `retry_after_ms`, `reset_after_ms`. `RL.ALL` puts before them what they come to together, a
//! [`Verdict`](decision::Verdict): `allowed` and `retry_after_ms`. Waits are the least whole milliseconds for which the promise
//! holds: after exactly `retry_after_ms` the same call is admitted, one sooner it is not.
//!
//! # How it is built
//!
//! Two halves. The core knows no Redis. A limiter is made of a policy, the stored state and an
//! instant; it judges a cost, is charged, and tells what is to be stored.
//!
//! - [`request`]: argument bytes to a [`policy`] and a cost, or to several
//! - [`limiter`]: the algorithms, each with its stored form beside it
//! - [`decision`]: what they answer
//! - [`clock`]: instants, and clocks that run backwards
//! - [`decimal`]: integers as text; `wide`: products of 128 bits
//! - [`error`]: every reply text
//!
//! The shell, `redis`, knows no algorithm: it opens keys, runs the core, writes, replicates and
//! replies. Only it names the server's API, and only it has unsafe code.
//!
//! One call, as the shell makes it:
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::limiter::Limiter;
//! use redis_rl::limiter::text::{Change, State, Stored, TextLimiter};
//! use redis_rl::limiter::token::TokenBucket;
//! use redis_rl::policy::Policy;
//! use redis_rl::request;
//!
//! // RL.TOKEN key 100 10 1000 COST 30, on a key that does not exist.
//! let args = ["100", "10", "1000", "COST", "30"].map(str::as_bytes);
//! let call = request::token(args.into_iter())?;
//! let Policy::Token(policy) = call.policy else { unreachable!() };
//! let now = Timestamp::from_us(1_779_331_200_000_000).expect("a clock in range");
//! let mut bucket = TokenBucket::at(policy, None, now)?;
//! assert_eq!(bucket.decide(call.charge)?.reply(), [1, 100, 70, 0, 3_000]);
//!
//! // What is stored then, and the same call once more: 30 of 70 leave.
//! let Change::Set { state, expire_at_ms, .. } = bucket.change() else { unreachable!() };
//! let text = state.encode();
//! assert_eq!(text.as_slice(), b"T1:70000000:1000000:1779331200000000");
//! let stored = Stored { text: &text, expire_at_ms };
//! let mut bucket = TokenBucket::at(policy, Some(stored), now)?;
//! assert_eq!(bucket.decide(call.charge)?.reply(), [1, 100, 40, 0, 6_000]);
//! # Ok::<(), redis_rl::error::Error>(())
//! ```
//!
//! Another algorithm is a file in [`limiter`], a variant of [`policy::Policy`] with its words in
//! [`request`], and its tests; the compiler then names the arms in the shell's `run`, `all` and
//! `stats`. Another command is a row in the shell's table of commands, a row of its counts in `stats`,
//! and what it runs.
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
pub mod limiter;
pub mod policy;
mod redis;
pub mod request;
mod wide;
