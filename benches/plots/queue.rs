//! A queue of jobs that one worker drains: it sleeps as long as a refusal says, or as long as it guesses.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::limiter::{Limiter, MS, SECOND};
use crate::sheet::{
    Area, Axis, Drawn, FAINT, GO, INK, RIGHT, SMALL, STOP, TEXT, WIDTH, chart, command, seconds,
    sheet, text, text_at, whole,
};

const POLICY: &str = "TOKEN 1 2 1000";
const END: u32 = 10 * SECOND;
/// What the worker sleeps that does not look at `retry_after_ms`.
const GUESS: u32 = 300 * MS;
/// Pixels left of time.
const LEFT: u32 = 150;

struct Worker {
    label: &'static str,
    calls: Vec<(u32, bool)>,
    color: RGBColor,
}

/// When the calls of a worker come, and whether each is admitted. A job itself takes no time.
fn calls(sleep: impl Fn(u32) -> u32) -> Vec<(u32, bool)> {
    let (mut limiter, mut calls, mut at) = (Limiter::new(POLICY), Vec::new(), 0);
    while at <= END {
        let reply = limiter.call(at);
        calls.push((at, reply.admitted));
        if !reply.admitted {
            at += sleep(reply.retry_after_us);
        }
    }
    calls
}

fn told() -> Vec<(u32, bool)> {
    calls(|retry_after| retry_after)
}

fn guessed() -> Vec<(u32, bool)> {
    calls(|_| GUESS)
}

fn jobs(calls: &[(u32, bool)]) -> usize {
    calls.iter().filter(|(_, admitted)| *admitted).count()
}

pub fn draw() -> Drawn<String> {
    let title = "A worker that sleeps exactly retry_after_ms";
    let note = format!(
        "{}: one job every 500 ms. A refused call sleeps, then tries again.",
        command(POLICY)
    );
    sheet(title, &note, 1_240, |area| {
        let worker = |label, calls, color| Worker {
            label,
            calls,
            color,
        };
        let workers = [
            worker("sleeps retry_after_ms", told(), GO),
            worker("sleeps 300 ms, a guess", guessed(), STOP),
        ];
        let (strips, chart) = area.split_vertically(280);
        for (strip, worker) in strips.split_evenly((2, 1)).iter().zip(&workers) {
            draw_calls(strip, worker)?;
        }
        draw_jobs(&chart, &workers)
    })
}

/// The calls of one worker: upwards those that are admitted, downwards those that are refused.
fn draw_calls(strip: &Area<'_>, worker: &Worker) -> Drawn<()> {
    let Worker {
        label,
        calls,
        color,
    } = worker;
    strip.draw_text(label, &text(TEXT, *color), (LEFT as i32, 8))?;
    let told = format!("{} jobs with {} calls", jobs(calls), calls.len());
    let right = text_at(TEXT, INK, HPos::Right, VPos::Top);
    strip.draw_text(&told, &right, ((WIDTH - RIGHT) as i32, 8))?;
    for (label, y) in [("admitted", 76), ("refused", 110)] {
        let style = text_at(SMALL, FAINT, HPos::Right, VPos::Center);
        strip.draw_text(label, &style, (LEFT as i32 - 16, y))?;
    }
    let mut chart = ChartBuilder::on(strip)
        .margin_top(60)
        .margin_bottom(16)
        .margin_right(RIGHT)
        .margin_left(LEFT)
        .build_cartesian_2d(0.0..seconds(END), -1.0..1.0)?;
    chart.draw_series(calls.iter().map(|(at, admitted)| {
        let (at, y) = (
            seconds(*at),
            if *admitted {
                [0.15, 1.0]
            } else {
                [-0.8, -0.15]
            },
        );
        PathElement::new(y.map(|y| (at, y)), color.stroke_width(5))
    }))?;
    Ok(())
}

/// The jobs that each has done, beside the rate.
fn draw_jobs(area: &Area<'_>, workers: &[Worker]) -> Drawn<()> {
    let x = Axis {
        range: 0.0..seconds(END),
        name: "time, s",
        labels: 11,
        label: whole,
    };
    let y = Axis {
        range: 0.0..23.0,
        name: "jobs done",
        labels: 5,
        label: whole,
    };
    let mut chart = chart(area, [20, LEFT - 14, 90], x, y)?;
    for Worker { calls, color, .. } in workers {
        let done = calls.iter().filter(|(_, admitted)| *admitted);
        let steps = (0..).zip(done).flat_map(|(before, (at, _))| {
            [before, before + 1].map(|jobs| (seconds(*at), f64::from(jobs)))
        });
        chart.draw_series(LineSeries::new(steps, color.stroke_width(5)))?;
    }
    let rate = |at: f64| (at, 1.0 + 2.0 * at);
    let line = [rate(0.0), rate(seconds(END))];
    chart.draw_series(DashedLineSeries::new(line, 10, 8, INK.stroke_width(2)))?;
    let [told, guessed] = workers else {
        return Ok(());
    };
    let labels = [
        ("rate: 1 + 2 per second", (4.4, 11.0), HPos::Right, INK),
        (told.label, (6.6, 16.6), HPos::Right, told.color),
        (guessed.label, (7.5, 10.5), HPos::Left, guessed.color),
    ];
    chart.draw_series(labels.map(|(label, at, side, color)| {
        Text::new(label, at, text_at(SMALL, color, side, VPos::Center))
    }))?;
    Ok(())
}

#[test]
fn a_worker_that_sleeps_as_told_is_at_the_rate_with_two_calls_for_a_job() {
    let calls = told();
    let done = calls
        .iter()
        .filter(|(_, admitted)| *admitted)
        .map(|(at, _)| *at);
    assert!(done.eq((0..=20).map(|job| job * SECOND / 2)));
    assert_eq!(calls.len(), 2 * jobs(&calls));
    assert!(jobs(&guessed()) < jobs(&calls));
    assert!(guessed().len() > calls.len());
}
