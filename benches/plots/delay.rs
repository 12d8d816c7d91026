//! Requests that wait for their turn: the recipe "Delay instead of refusal".

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::limiter::{Limiter, MS, SECOND};
use crate::sheet::{
    Axis, Drawn, GO, INK, SMALL, STOP, chart, command, seconds, sheet, text_at, whole,
};

const POLICY: &str = "TOKEN 6 10 1000";
/// One request's share of the rate.
const INTERVAL: u32 = 100 * MS;
const END: u32 = 3 * SECOND;
/// Eight at once, three, five in turn that come a little too early, and eight nearly at once.
const ARRIVALS: [(u32, u32, u32); 4] = [
    (0, 0, 8),
    (350 * MS, 0, 3),
    (1_250 * MS, 80 * MS, 6),
    (2_100 * MS, 20 * MS, 8),
];

/// When each request comes, and when it starts if it is admitted.
fn requests() -> Vec<(u32, Option<u32>)> {
    let mut limiter = Limiter::new(POLICY);
    let arrivals = |(from, every, count)| (0..count).map(move |n| from + n * every);
    let request = |at| {
        let reply = limiter.call(at);
        let start = at + reply.reset_after_us.saturating_sub(INTERVAL);
        (at, reply.admitted.then_some(start))
    };
    ARRIVALS
        .into_iter()
        .flat_map(arrivals)
        .map(request)
        .collect()
}

pub fn draw() -> Drawn<String> {
    let title = "Requests wait for their turn";
    let note = format!(
        "{}: one start every 100 ms, up to 5 wait, the others are refused.",
        command(POLICY)
    );
    let requests = requests();
    sheet(title, &note, 1_140, |area| {
        let rows = f64::from(u32::try_from(requests.len())?);
        let x = Axis {
            range: -0.05..seconds(END),
            name: "time, s",
            labels: 31,
            label: |at| {
                let tenths = (at * 10.0).round();
                if tenths % 5.0 == 0.0 {
                    format!("{at:.1}")
                } else {
                    String::new()
                }
            },
        };
        let y = Axis {
            range: rows + 1.0..0.0,
            name: "request",
            labels: 6,
            label: |row| if row > 0.0 { whole(row) } else { String::new() },
        };
        let mut chart = chart(&area, [10, 116, 90], x, y)?;
        for (row, (at, start)) in (1..).zip(&requests) {
            let (row, at) = (f64::from(row), seconds(*at));
            if let Some(start) = start.map(seconds) {
                chart.draw_series([PathElement::new(
                    [(at, row), (start, row)],
                    GO.stroke_width(4),
                )])?;
                chart.draw_series([Circle::new((start, row), 11, GO.filled())])?;
            } else {
                chart.draw_series([Cross::new((at, row), 10, STOP.stroke_width(5))])?;
            }
        }
        let labels = [
            ("line: waits, dot: starts", (0.56, 6.0), GO),
            ("refused: 5 wait already", (0.04, 7.5), STOP),
            ("starts are at least 100 ms apart", (0.9, 11.0), INK),
        ];
        chart.draw_series(labels.map(|(label, at, color)| {
            Text::new(label, at, text_at(SMALL, color, HPos::Left, VPos::Center))
        }))?;
        Ok(())
    })
}

#[test]
fn no_two_start_within_an_interval_and_no_more_than_five_wait() {
    let requests = requests();
    let starts: Vec<u32> = requests.iter().filter_map(|(_, start)| *start).collect();
    assert!(starts.windows(2).all(|pair| pair[0] + INTERVAL <= pair[1]));
    for (now, _) in &requests {
        let waits = |(at, start): &&(u32, Option<u32>)| {
            at <= now && start.is_some_and(|start| start > *now)
        };
        assert!(requests.iter().filter(waits).count() <= 5);
    }
}
