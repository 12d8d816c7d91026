//! Draws the pictures of the pages, `docs/plots/*.svg`: `make plots`.
//!
//! What limiters do comes from the core, on a clock that is a number. What commands cost comes from
//! the tables in `benches/`.
//!
//! | file | owns |
//! |---|---|
//! | `limiter` | a policy, its key in memory, and the replies to calls |
//! | `sheet` | paper, colours, text, and the SVG around them |
//! | `burst`, `edge`, `queue`, `delay`, `speed` | a picture each |
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_wrap,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a plot may fail"
)]

mod burst;
mod delay;
mod edge;
#[allow(dead_code, reason = "the tests' own")]
#[path = "../../tests/core/key.rs"]
mod key;
mod limiter;
mod queue;
mod sheet;
mod speed;

use std::fs;
use std::path::PathBuf;

/// Each picture by its file's name.
fn pictures() -> [(&'static str, String); 5] {
    [
        ("burst.svg", burst::draw()),
        ("edge.svg", edge::draw()),
        ("queue.svg", queue::draw()),
        ("delay.svg", delay::draw()),
        ("speed.svg", speed::draw()),
    ]
    .map(|(name, drawn)| (name, drawn.expect(name)))
}

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn main() {
    for (name, svg) in pictures() {
        let path = format!("docs/plots/{name}");
        fs::write(file(&path), svg).expect(&path);
        println!("{path}");
    }
}

#[test]
fn the_pictures_are_those_that_the_code_draws() {
    for (name, svg) in pictures() {
        let path = format!("docs/plots/{name}");
        let committed = fs::read_to_string(file(&path)).unwrap_or_default();
        assert!(committed == svg, "{path} is out of date: run `make plots`");
    }
}
