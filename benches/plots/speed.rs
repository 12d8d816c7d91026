//! What commands cost beside `SET … PX`, from the tables in `benches/`.

use std::fs;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use crate::file;
use crate::sheet::{Axis, Drawn, GO, INK, SMALL, STOP, TEXT, chart, sheet, text_at, whole};

const SERVER: &str = "redis-7.0.15-";
const BASE: &str = "SET k 1 PX n";
/// What an admitted and a refused call is called in the tables.
const ROWS: [(&str, [&str; 2]); 8] = [
    ("RL.FIXED", ["RL.FIXED admitted", "RL.FIXED refused"]),
    ("RL.TOKEN", ["RL.TOKEN admitted", "RL.TOKEN refused"]),
    ("RL.SLIDE", ["RL.SLIDE admitted", "RL.SLIDE refused"]),
    (
        "RL.SLIDE … EXACT",
        [
            "RL.SLIDE EXACT 100 admitted, one leaves",
            "RL.SLIDE EXACT 100 refused",
        ],
    ),
    (
        "redis-cell 0.5.0",
        [
            "CL.THROTTLE k 1000000 1 60, key known, admitted",
            "CL.THROTTLE k 99 1 3600, key known, refused",
        ],
    ),
    (
        "Lua, fixed window",
        ["Lua fixed admitted", "Lua fixed refused"],
    ),
    (
        "Lua, token bucket",
        ["Lua token admitted", "Lua token refused"],
    ),
    (
        "Lua, sliding window",
        ["Lua slide admitted", "Lua slide refused"],
    ),
];

/// Instructions of a command, from whichever table has it.
fn instructions(tables: &str, command: &str) -> f64 {
    let count = tables.lines().find_map(|line| {
        let mut fields = line.split('\t');
        let server = fields.next()?;
        (server.starts_with(SERVER) && fields.next()? == command).then_some(())?;
        fields.next()?.parse().ok()
    });
    count.unwrap_or_else(|| panic!("the tables have no {command} on {SERVER}"))
}

pub fn draw() -> Drawn<String> {
    let tables = ["instructions", "redis-cell"]
        .map(|name| fs::read_to_string(file(&format!("benches/{name}.tsv"))).expect(name))
        .concat();
    let base = instructions(&tables, BASE);
    // Rounded as its label: smaller changes of the tables don't change the picture.
    let ratio = |command| (instructions(&tables, command) / base * 100.0).round() / 100.0;
    let title = "Instructions in the server, beside SET … PX";
    let note = "The whole command on Redis 7.0.15, counted by callgrind. Less is better.";
    sheet(title, note, 1_150, |area| {
        let x = Axis {
            range: 0.0..8.6,
            name: "instructions ÷ those of SET k 1 PX n",
            labels: 9,
            label: whole,
        };
        let y = Axis {
            range: 8.0..-0.4,
            name: "",
            labels: 0,
            label: |_| String::new(),
        };
        let mut chart = chart(&area, [10, 336, 90], x, y)?;
        for (row, (name, commands)) in (0..).zip(ROWS) {
            let row = f64::from(row);
            let style = text_at(TEXT, INK, HPos::Right, VPos::Center);
            let y = chart.backend_coord(&(0.0, row + 0.45)).1 - area.get_base_pixel().1;
            area.draw_text(name, &style, (330, y))?;
            for (place, command) in [0.06, 0.46].into_iter().zip(commands) {
                let (ratio, top) = (ratio(command), row + place);
                let (color, word) = if place < 0.4 {
                    (GO, "admitted")
                } else {
                    (STOP, "refused")
                };
                let bar = [(0.0, top), (ratio, top + 0.36)];
                chart.draw_series([Rectangle::new(bar, color.filled())])?;
                let label = if row < 1.0 {
                    format!("{ratio:.2} {word}")
                } else {
                    format!("{ratio:.2}")
                };
                let style = text_at(SMALL, INK, HPos::Left, VPos::Center);
                chart.draw_series([Text::new(
                    label,
                    (ratio.max(1.0) + 0.06, top + 0.18),
                    style,
                )])?;
            }
        }
        let base = [(1.0, -0.1), (1.0, 8.0)];
        chart.draw_series(DashedLineSeries::new(base, 10, 8, INK.stroke_width(3)))?;
        let style = text_at(SMALL, INK, HPos::Left, VPos::Center);
        chart.draw_series([Text::new(format!("1 = {BASE}"), (1.06, -0.2), style)])?;
        Ok(())
    })
}
