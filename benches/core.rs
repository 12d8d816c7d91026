//! The core alone, without a server: what parsing, deciding and encoding cost.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a benchmark may fail"
)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redis_rl::clock::Timestamp;
use redis_rl::decimal;
use redis_rl::decision::Decision;
use redis_rl::error::InvalidState;
use redis_rl::limiter::Limiter;
use redis_rl::limiter::fixed::{Counter, FixedWindow};
use redis_rl::limiter::log::{self, Seen, SlidingLog};
use redis_rl::limiter::slide::{SlidingWindow, Windows};
use redis_rl::limiter::text::{Change, State, Stored, TextLimiter};
use redis_rl::limiter::token::{Level, TokenBucket};
use redis_rl::policy::{Charge, ExactPolicy, FixedPolicy, SlidePolicy, Span, TokenPolicy, Units};
use redis_rl::request;

/// 2026-05-21T02:40:15Z: a quarter into a minute.
const NOW_US: u64 = 1_779_331_215_000_000;
const MINUTE_MS: u64 = 60_000;
/// Where the minute begins.
const START_MS: u64 = 1_779_331_200_000;

fn now() -> Timestamp {
    Timestamp::from_us(NOW_US).unwrap()
}

fn units(n: u64) -> Units {
    Units::new(n).unwrap()
}

fn minute() -> Span {
    Span::from_ms(MINUTE_MS).unwrap()
}

fn parsing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let words = |line: &'static str| line.split(' ').map(str::as_bytes);
    for (name, digits) in [
        ("1 digit", "7"),
        ("5 digits", "60000"),
        ("16 digits", "1779331215000000"),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| decimal::parse(black_box(digits.as_bytes())));
        });
    }
    let args: Vec<&[u8]> = words("1000 60000").collect();
    group.bench_function("RL.FIXED", |bencher| {
        bencher.iter(|| request::fixed(black_box(&args).iter().copied()));
    });
    let args: Vec<&[u8]> = words("1000 10 1000 COST 3").collect();
    group.bench_function("RL.TOKEN with a cost", |bencher| {
        bencher.iter(|| request::token(black_box(&args).iter().copied()));
    });
    let args: Vec<&[u8]> = words("1000 60000 EXACT").collect();
    group.bench_function("RL.SLIDE EXACT", |bencher| {
        bencher.iter(|| request::slide(black_box(&args).iter().copied()));
    });
    group.finish();
}

fn state(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("state");
    let level = Level {
        level: 5_940_000_000,
        period: minute(),
        time: now(),
    };
    let windows = Windows {
        window: minute(),
        start_ms: START_MS,
        previous: 80,
        current: 30,
    };
    group.bench_function("counter to text", |bencher| {
        bencher.iter(|| Counter(black_box(1_234)).encode());
    });
    group.bench_function("text to counter", |bencher| {
        bencher.iter(|| Counter::decode(black_box(b"1234")));
    });
    group.bench_function("bucket to text", |bencher| {
        bencher.iter(|| black_box(level).encode());
    });
    let text = level.encode();
    group.bench_function("text to bucket", |bencher| {
        bencher.iter(|| Level::decode(black_box(&text)));
    });
    group.bench_function("windows to text", |bencher| {
        bencher.iter(|| black_box(windows).encode());
    });
    let text = windows.encode();
    group.bench_function("text to windows", |bencher| {
        bencher.iter(|| Windows::decode(black_box(&text)));
    });
    let text = log::encode_entry(now());
    group.bench_function("text to entry", |bencher| {
        bencher.iter(|| log::decode_entry(black_box(&text)));
    });
    group.finish();
}

fn stored(text: &[u8]) -> Stored<'_> {
    let expire_at_ms = Some(START_MS + 2 * MINUTE_MS);
    Stored { text, expire_at_ms }
}

/// One call, as the shell makes it.
fn judge<L: TextLimiter>(
    policy: &L::Policy,
    text: &str,
) -> Result<(Decision, Change<L::State>), InvalidState> {
    let stored = stored(black_box(text.as_bytes()));
    let mut limiter = L::at(*black_box(policy), Some(stored), now())?;
    Ok((limiter.decide(Charge::Cost(Units::ONE))?, limiter.change()))
}

fn deciding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    let policy = FixedPolicy {
        limit: units(100),
        window: minute(),
    };
    for (name, text) in [("admitted", "97"), ("refused", "100")] {
        let decide = || judge::<FixedWindow>(&policy, text);
        assert_eq!(decide().unwrap().0.is_admitted(), name == "admitted");
        group.bench_function(format!("fixed {name}"), |bencher| bencher.iter(decide));
    }
    let policy = TokenPolicy::new(units(100), units(100), minute()).unwrap();
    for (name, text) in [
        ("admitted", "T1:2940000000:60000000:1779331214000001"),
        ("refused", "T1:5940000:60000000:1779331214999999"),
    ] {
        let decide = || judge::<TokenBucket>(&policy, text);
        assert_eq!(decide().unwrap().0.is_admitted(), name == "admitted");
        group.bench_function(format!("token {name}"), |bencher| bencher.iter(decide));
    }
    let policy = SlidePolicy {
        limit: units(100),
        window: minute(),
    };
    for (name, text) in [
        ("admitted", "S1:60000:1779331200000:80:30"),
        ("refused", "S1:60000:1779331200000:80:90"),
    ] {
        let decide = || judge::<SlidingWindow>(&policy, text);
        assert_eq!(decide().unwrap().0.is_admitted(), name == "admitted");
        group.bench_function(format!("slide {name}"), |bencher| bencher.iter(decide));
    }
    for limit in [10, 10_000] {
        let policy = SlidePolicy {
            limit: units(limit),
            window: minute(),
        };
        let policy = ExactPolicy::new(policy).unwrap();
        // An entry per 6 s or 6 ms, the newest one right now.
        let apart_us = MINUTE_MS * 1_000 / limit;
        for (name, count, later_us) in [
            ("admitted, none leaves", limit - 1, 0),
            // The oldest is a window old half an entry before.
            ("admitted, one leaves", limit, apart_us * 3 / 2),
            ("refused", limit, 0),
        ] {
            let mut log: Vec<Timestamp> = (0..count)
                .rev()
                .map(|age| Timestamp::from_us(NOW_US - age * apart_us).unwrap())
                .collect();
            let now = Timestamp::from_us(NOW_US + later_us).unwrap();
            let mut decide = || {
                let stored = Some((black_box(&mut log), Some(START_MS + 2 * MINUTE_MS)));
                let mut seen = Seen::new();
                let mut log = SlidingLog::at(black_box(policy), stored, now, &mut seen)?;
                Ok::<_, InvalidState>((log.decide(Charge::Cost(Units::ONE))?, log.change()))
            };
            assert_eq!(decide().unwrap().0.is_admitted(), name != "refused");
            group.bench_function(format!("exact {limit} {name}"), |bencher| {
                bencher.iter(&mut decide);
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = core;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = parsing, state, deciding
}
criterion_main!(core);
