//! Tests on a real server, one file per promise.
//!
//! | file | promise |
//! |---|---|
//! | `all` | several limits are charged together or not at all, and hostile numbers of keys do no harm |
//! | `allocations` | no call allocates memory of the module's own |
//! | `answers` | a call that the server answers itself, instead of running the command, changes nothing |
//! | `any` | the promises that hold whatever the clock: also on a server that `REDIS_URL` names |
//! | `any::calls` | concurrent callers share one limit, keys are independent, the commands are known |
//! | `any::errors` | each invalid argument and each missing right has its error, with a fixed text |
//! | `any::hostile` | no argument, key or value that a client can send does harm |
//! | `any::state` | a value that no command could have written is an error, and stays as it is |
//! | `clock` | a clock that jitters or is set grants nothing, and stores what it should |
//! | `cluster` | redirections, hash tags, and one limit while its slot moves |
//! | `contexts` | transactions, scripts and both protocols get the same answers |
//! | `described` | what the server says of the commands: documentation, arguments, keys, rights |
//! | `events` | a refusal is a keyspace event for those who ask for it |
//! | `failover` | a window ends when it did, whichever server is the primary by then |
//! | `figures` | `INFO` counts every call, however it was made |
//! | `keys` | keys that somebody else made, and keys that have expired |
//! | `lease` | never more leases than the limit, whoever holds, renews, releases or is gone |
//! | `loading` | the module loads, unloads, and refuses a server or arguments that won't do |
//! | `memory` | in full memory, limiters that are known go on; what each eviction policy takes |
//! | `peek` | `RL.PEEK` answers as the call would, and writes nothing |
//! | `persistence` | a replica, an AOF, an RDB, a crash and a copied key give the same answers |
//! | `readme` | each transcript in the documents is what a server answers |
//! | `recipes` | the steps of the recipes come to what the page says |
//! | `refusals` | a refusal costs no change, and an admitted call is one |
//! | `replay` | recorded calls get the decisions that an independent model computed |
//! | `replication` | the stream carries results with absolute expiry, and nothing for a refusal |
//! | `runbook` | an operator's commands come to what the page says |
//! | `settle` | taking what there is, giving back and charging in any case: what a server answers |
//! | `soak` | millions of keys come and go, and memory returns to where it was |
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

mod all;
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
mod lease;
mod loading;
mod memory;
mod peek;
mod persistence;
mod readme;
mod recipes;
mod refusals;
mod replay;
mod replication;
mod runbook;
mod settle;
mod soak;
