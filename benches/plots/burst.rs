//! The same traffic at each algorithm: what is admitted, what is left, how long to wait.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::limiter::{Limiter, MS, SECOND};
use crate::sheet::{
    Area, Axis, Drawn, GO, INK, RIGHT, SMALL, STOP, TEXT, WIDTH, chart, command, seconds, sheet,
    text, text_at, whole,
};

const POLICIES: [&str; 4] = [
    "FIXED 10 10000",
    "TOKEN 10 1 1000",
    "SLIDE 10 10000",
    "SLIDE 10 10000 EXACT",
];
/// Heights in pixels: a panel, and the time below the last one.
const PANEL: u32 = 335;
const AXIS: u32 = 90;

const END: u32 = 40 * SECOND;
const STEP: u32 = 50 * MS;
/// A call every two seconds, twelve at once, four a second, nothing, and one every two seconds.
const TRAFFIC: [(u32, u32, u32); 4] = [
    (0, 2 * SECOND, 4),
    (8_500 * MS, 50 * MS, 12),
    (10 * SECOND, 250 * MS, 56),
    (30 * SECOND, 2 * SECOND, 5),
];

fn traffic() -> impl Iterator<Item = u32> {
    let calls = |(from, every, count)| (0..count).map(move |n| from + n * every);
    TRAFFIC.into_iter().flat_map(calls)
}

/// What happens at one limiter, over time in µs.
#[derive(Default)]
struct Course {
    admitted: Vec<u32>,
    refused: Vec<u32>,
    remaining: Vec<(u32, u32)>,
    wait_us: Vec<(u32, u32)>,
}

impl Course {
    fn of(policy: &'static str) -> Self {
        let (mut limiter, mut course) = (Limiter::new(policy), Self::default());
        for at_us in (0..=END).step_by(usize::try_from(STEP).expect("a few µs")) {
            course.look(&limiter, at_us);
            if traffic().any(|call_us| call_us == at_us) {
                if limiter.call(at_us).admitted {
                    course.admitted.push(at_us);
                } else {
                    course.refused.push(at_us);
                }
                course.look(&limiter, at_us);
            }
        }
        course
    }

    fn look(&mut self, limiter: &Limiter, at_us: u32) {
        let reply = limiter.look(at_us);
        add(&mut self.remaining, (at_us, reply.remaining));
        add(&mut self.wait_us, (at_us, reply.retry_after_us));
    }
}

/// Adds a point to a line, in the place of the last one if that is on the way.
fn add(line: &mut Vec<(u32, u32)>, point: (u32, u32)) {
    let slope = |from: (u32, u32), to: (u32, u32)| {
        let [x, y] = [(from.0, to.0), (from.1, to.1)].map(|(a, b)| i64::from(b) - i64::from(a));
        (x, y)
    };
    if let [.., a, b] = line[..] {
        let ((x1, y1), (x2, y2)) = (slope(a, b), slope(b, point));
        if x1 * y2 == x2 * y1 && y1.signum() == y2.signum() {
            line.pop();
        }
    }
    line.push(point);
}

pub fn draw() -> Drawn<String> {
    let note =
        "10 per 10 s. Calls: a trickle, 12 at once, 4 a second for 14 s, a pause, a trickle.";
    sheet(
        "One burst of traffic at each algorithm",
        note,
        1_590,
        |area| {
            let mut rest = area;
            for (place, policy) in (1..).zip(POLICIES) {
                let axis = if place == POLICIES.len() { AXIS } else { 0 };
                let (panel, below) = rest.split_vertically(PANEL + axis);
                draw_course(&panel, policy, &Course::of(policy), axis)?;
                rest = below;
            }
            Ok(())
        },
    )
}

fn draw_course(panel: &Area<'_>, policy: &str, course: &Course, axis: u32) -> Drawn<()> {
    panel.draw_text(&command(policy), &text(TEXT, INK), (30, 8))?;
    let told = format!(
        "{} admitted, {} refused",
        course.admitted.len(),
        course.refused.len()
    );
    let right = text_at(TEXT, INK, HPos::Right, VPos::Top);
    panel.draw_text(&told, &right, ((WIDTH - RIGHT) as i32, 8))?;

    let x = Axis {
        range: 0.0..seconds(END),
        name: "time, s",
        labels: 9,
        label: whole,
    };
    let y = Axis {
        range: -8.0..16.0,
        name: "",
        labels: 6,
        label: |y| match y {
            y if y > 10.0 => String::new(),
            y if y < 0.0 => format!("{} s", -y),
            y => whole(y),
        },
    };
    let mut chart = chart(panel, [50, 86, axis], x, y)?;

    let remaining = course
        .remaining
        .iter()
        .map(|(at, n)| (seconds(*at), f64::from(*n)));
    let wait = course
        .wait_us
        .iter()
        .map(|(at, ms)| (seconds(*at), -seconds(*ms)));
    let line = |color: RGBColor| color.stroke_width(3);
    chart.draw_series(AreaSeries::new(remaining, 0.0, GO.mix(0.3)).border_style(line(GO)))?;
    chart.draw_series(AreaSeries::new(wait, 0.0, STOP.mix(0.3)).border_style(line(STOP)))?;

    let tick = |at: &u32, from: f64, to: f64, color: RGBColor| {
        let at = seconds(*at);
        PathElement::new([(at, from), (at, to)], color.stroke_width(4))
    };
    chart.draw_series(course.admitted.iter().map(|at| tick(at, 13.0, 15.5, GO)))?;
    chart.draw_series(course.refused.iter().map(|at| tick(at, 11.2, 12.4, STOP)))?;
    let labels = [
        ("admitted", (24.3, 14.3), GO),
        ("refused", (24.3, 11.8), STOP),
        ("units left", (0.5, 4.0), GO),
        ("seconds to wait", (0.5, -3.0), STOP),
    ];
    chart.draw_series(labels.map(|(label, at, color)| {
        Text::new(label, at, text_at(SMALL, color, HPos::Left, VPos::Center))
    }))?;
    Ok(())
}
