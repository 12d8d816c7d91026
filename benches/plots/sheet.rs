//! Paper, colours, text, and the SVG around them.
//!
//! A sheet is drawn twice as large as a page shows it: plotters rounds to whole pixels.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::limiter::SECOND;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn<T> = Result<T, Box<dyn Error>>;

pub type Chart<'a, 'b> =
    ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub const WIDTH: u32 = 1600;
/// What is free at the right.
pub const RIGHT: u32 = 40;
/// Title and note.
const HEAD: i32 = 140;

const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFE);
pub const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
pub const FAINT: RGBColor = RGBColor(0x59, 0x63, 0x6E);
const GRID: RGBColor = RGBColor(0xD1, 0xD9, 0xE0);
/// What is admitted, and what is left. This pair of Okabe and Ito's palette is told apart in every
/// kind of colour blindness, and by its lightness too.
pub const GO: RGBColor = RGBColor(0x00, 0x72, 0xB2);
/// What is refused, and what has to wait.
pub const STOP: RGBColor = RGBColor(0xD5, 0x5E, 0x00);

/// What each colour is on a dark page.
const DARK: [(RGBColor, &str); 6] = [
    (PAPER, "#0d1117"),
    (INK, "#f0f6fc"),
    (FAINT, "#9198a1"),
    (GRID, "#3d444d"),
    (GO, "#56b4e9"),
    (STOP, "#e69f00"),
];

/// Text sizes, in pixels of the sheet.
pub const SMALL: u32 = 33;
pub const TEXT: u32 = 37;
const TITLE: u32 = 54;

/// Draws a picture below its title and a note of a line.
pub fn sheet(
    title: &str,
    note: &str,
    height: u32,
    draw: impl FnOnce(Area<'_>) -> Drawn<()>,
) -> Drawn<String> {
    let mut svg = String::new();
    {
        let paper = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        paper.fill(&PAPER)?;
        let bold = ("sans-serif", TITLE).into_font().style(FontStyle::Bold);
        paper.draw_text(title, &bold.color(&INK), (30, 20))?;
        paper.draw_text(note, &text(TEXT, FAINT), (30, 82))?;
        draw(paper.split_vertically(HEAD).1)?;
        paper.present()?;
    }
    let dark: String = DARK
        .iter()
        .map(|(light, dark)| in_the_dark(*light, dark))
        .collect();
    let style = format!("<style>@media (prefers-color-scheme: dark) {{{dark}}}</style>\n");
    let head = svg.find("xmlns").ok_or("no SVG")?;
    let body = svg.find('\n').ok_or("no SVG")? + 1;
    let size = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{}\" ",
        WIDTH / 2
    );
    Ok(format!("{size}{}{style}{}", &svg[head..body], &svg[body..]))
}

/// A rule that outweighs the attributes of plotters' elements.
fn in_the_dark(RGBColor(r, g, b): RGBColor, dark: &str) -> String {
    let light = format!("#{r:02X}{g:02X}{b:02X}");
    format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
}

pub fn text(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

/// Text that lies beside a point, other than right and below.
pub fn text_at(size: u32, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    text(size, color).pos(Pos::new(h, v))
}

/// Microseconds as seconds.
pub fn seconds(us: u32) -> f64 {
    f64::from(us) / f64::from(SECOND)
}

/// A policy as the command that has it: `RL.FIXED key 10 10000`.
pub fn command(policy: &str) -> String {
    let (algorithm, numbers) = policy.split_once(' ').unwrap_or((policy, ""));
    format!("RL.{algorithm} key {numbers}")
}

/// An axis with its name and unit, about so many labels, and what a label says.
pub struct Axis {
    pub range: Range<f64>,
    pub name: &'static str,
    pub labels: usize,
    pub label: fn(f64) -> String,
}

pub fn whole(number: f64) -> String {
    format!("{number:.0}")
}

/// Axes and a grid, with so many pixels above, and left and below for what the axes say.
pub fn chart<'a, 'b>(
    area: &'b Area<'a>,
    [top, left, below]: [u32; 3],
    x: Axis,
    y: Axis,
) -> Drawn<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(top)
        .margin_right(RIGHT)
        .margin_bottom(14)
        .margin_left(14)
        .set_label_area_size(LabelAreaPosition::Left, left)
        .set_label_area_size(LabelAreaPosition::Bottom, below)
        .build_cartesian_2d(x.range, y.range)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(SMALL, FAINT))
        .x_desc(x.name)
        .x_labels(x.labels)
        .x_label_formatter(&|at| (x.label)(*at))
        .y_desc(y.name)
        .y_labels(y.labels)
        .y_label_formatter(&|at| (y.label)(*at))
        .draw()?;
    Ok(chart)
}
