//! How much one client gets within a window's length, at the worst moment for each algorithm.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::limiter::{Limiter, SECOND};
use crate::sheet::{
    Area, Axis, Drawn, GO, INK, SMALL, STOP, TEXT, chart, command, seconds, sheet, text, text_at,
    whole,
};

const LIMIT: f64 = 100.0;
const WINDOW: u32 = 60 * SECOND;
const END: u32 = 3 * WINDOW;
/// When the client begins to take all it can.
const START: u32 = WINDOW - SECOND / 2;

/// And what is said of each.
const POLICIES: [(&str, &str); 4] = [
    ("FIXED 100 60000", "within a moment"),
    ("SLIDE 100 60000", "at once, then as it fades"),
    ("TOKEN 100 100 60000", "capacity, then the refill"),
    ("SLIDE 100 60000 EXACT", "never above the limit"),
];
/// A bucket whose capacity and refill come to the limit together.
const SMALLER: &str = "TOKEN 20 80 60000";

/// When units are admitted to a client that asks as soon as it may.
fn admitted(policy: &'static str) -> Vec<u32> {
    let mut limiter = Limiter::new(policy);
    let mut admitted = Vec::new();
    let mut at = START;
    if policy.starts_with("FIXED") {
        // The first call starts the window, late in its millisecond, but the window ends early in one.
        at = 999;
        limiter.call(at);
        admitted.push(at);
        at = START;
    }
    while at <= END {
        let reply = limiter.call(at);
        admitted.extend(reply.admitted.then_some(at));
        at += reply.retry_after_us;
    }
    admitted
}

/// The units of the last window's length, at each instant at which their number changes.
fn within_a_window(admitted: &[u32]) -> Vec<(u32, u32)> {
    let mut changes: Vec<u32> = admitted.iter().flat_map(|at| [*at, at + WINDOW]).collect();
    changes.sort_unstable();
    changes.dedup();
    let mut points = vec![(0, 0)];
    for at in changes.into_iter().filter(|at| *at <= END) {
        let young = |unit: &&u32| **unit <= at && at < **unit + WINDOW;
        let units = u32::try_from(admitted.iter().filter(young).count()).expect("hundreds");
        points.push((at, points[points.len() - 1].1));
        points.push((at, units));
    }
    points.push((END, points[points.len() - 1].1));
    points
}

/// The most units within a window's length, and when that was first.
fn peak(points: &[(u32, u32)]) -> (u32, u32) {
    let most = points.iter().map(|(_, units)| *units).max().unwrap_or(0);
    *points
        .iter()
        .find(|(_, units)| *units == most)
        .expect("a point")
}

pub fn draw() -> Drawn<String> {
    let note = "100 per minute. One client takes all it can from the worst moment on.";
    sheet("How much passes within one minute", note, 1_270, |area| {
        for (panel, (policy, remark)) in area.split_evenly((2, 2)).iter().zip(POLICIES) {
            draw_panel(panel, policy, remark)?;
        }
        Ok(())
    })
}

fn draw_panel(panel: &Area<'_>, policy: &'static str, remark: &str) -> Drawn<()> {
    panel.draw_text(&command(policy), &text(TEXT, INK), (30, 8))?;
    let (minutes, units) = ("time, minutes", "units in the last minute");
    let x = Axis {
        range: 0.0..seconds(END) / 60.0,
        name: minutes,
        labels: 4,
        label: whole,
    };
    let y = Axis {
        range: 0.0..230.0,
        name: units,
        labels: 5,
        label: whole,
    };
    let mut chart = chart(panel, [56, 120, 90], x, y)?;

    let curve = |points: &[(u32, u32)]| -> Vec<(f64, f64)> {
        let point = |(at, units): &(u32, u32)| (seconds(*at) / 60.0, f64::from(*units));
        points.iter().map(point).collect()
    };
    let points = within_a_window(&admitted(policy));
    let (at, most) = peak(&points);
    let points = curve(&points);
    let above = points.iter().map(|(at, units)| (*at, units.max(LIMIT)));
    chart.draw_series(AreaSeries::new(above, LIMIT, STOP.mix(0.35)))?;
    let below = points.iter().map(|(at, units)| (*at, units.min(LIMIT)));
    chart.draw_series(AreaSeries::new(below, 0.0, GO.mix(0.3)))?;
    chart.draw_series(LineSeries::new(points, GO.stroke_width(4)))?;
    let limit = [(0.0, LIMIT), (seconds(END) / 60.0, LIMIT)];
    chart.draw_series(DashedLineSeries::new(limit, 10, 8, INK.stroke_width(2)))?;
    if policy.starts_with("TOKEN") {
        let points = within_a_window(&admitted(SMALLER));
        chart.draw_series(LineSeries::new(curve(&points), INK.stroke_width(3)))?;
        let label = format!("{}: {}", command(SMALLER), peak(&points).1);
        let style = text_at(SMALL, INK, HPos::Left, VPos::Center);
        chart.draw_series([Text::new(label, (1.06, 14.0), style)])?;
    }

    let at = seconds(at) / 60.0;
    chart.draw_series([Circle::new((at, f64::from(most)), 8, INK.filled())])?;
    let label = format!("{most}: {remark}");
    let style = text_at(SMALL, INK, HPos::Left, VPos::Center);
    chart.draw_series([
        Text::new(label, (0.06, 216.0), style.clone()),
        Text::new("limit".to_owned(), (0.06, 110.0), style),
    ])?;
    Ok(())
}

#[test]
fn the_most_that_passes_is_what_the_pages_say() {
    let most = |policy| peak(&within_a_window(&admitted(policy))).1;
    assert_eq!(
        POLICIES.map(|(policy, _)| most(policy)),
        [200, 199, 199, 100]
    );
    assert_eq!(most(SMALLER), 99);
}
