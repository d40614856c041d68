//! Panels of lines: a line for each system, with marks and the spread of the rounds.

use super::canvas::{Anchor, Canvas, Drawing, LETTERS, Legend, SMALL, WIDTH, draw, fit, width_of};
use super::colour::Ink;
use super::scale::Scale;
use super::text;
use crate::error::Result;
use crate::sample::Spread;

/// From this many points on, a line has no marks, and a band instead of whiskers.
const DENSE: usize = 20;
const BESIDE: f64 = 78.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 46.0;

/// One line.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    pub name: String,
    pub slot: u8,
    pub points: Vec<(f64, Spread)>,
}

/// Lines in one pair of axes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Panel {
    /// Above it; empty if it is the only one.
    pub name: String,
    pub series: Vec<Series>,
    pub axis: String,
    pub axis_below: String,
    /// Values that are marked on the axis below, and their names; or the scale marks its own.
    pub marks: Option<Vec<(f64, String)>>,
    /// The span of values above which an axis is logarithmic: of that below, and of the other.
    pub log_over: [f64; 2],
}

/// Draws panels: one, or several in two columns, below one legend.
pub(super) fn panels(title: &str, systems: &[(String, u8)], panels: &[Panel]) -> Result<Drawing> {
    let legend = Legend::of(systems);
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let width = WIDTH / columns as f64;
    let height = if columns == 1 { 380.0 } else { 290.0 };
    let top = legend.height + 4.0;
    let rows = panels.len().div_ceil(columns);
    draw(title, top + rows as f64 * height, |canvas| {
        legend.draw(canvas, true)?;
        for (at, panel) in panels.iter().enumerate() {
            let (x, y) = ((at % columns) as f64 * width, top + (at / columns) as f64 * height);
            draw_panel(canvas, panel, [x, y, x + width, y + height])?;
        }
        Ok(())
    })
}

fn draw_panel(canvas: &Canvas<'_>, panel: &Panel, [x0, y0, x1, y1]: [f64; 4]) -> Result<()> {
    let above = if panel.name.is_empty() { ABOVE } else { ABOVE + 20.0 };
    let [left, right, top, bottom] = [x0 + BESIDE, x1 - 24.0, y0 + above, y1 - BELOW];
    let points = || panel.series.iter().flat_map(|it| &it.points);
    let xs: Vec<f64> = points().map(|it| it.0).collect();
    let ys: Vec<f64> = points().flat_map(|(_, it)| [it.low, it.median, it.high]).collect();
    let across = Scale::of_positions(&xs, panel.log_over[0], left, right);
    let up = Scale::of_amounts(&ys, panel.log_over[1], bottom, top);
    if !panel.name.is_empty() {
        let name = fit(&panel.name, right - x0, LETTERS);
        canvas.text(&name, (x0 + 8.0, y0 + 14.0), Anchor::Left, LETTERS, Ink::Text)?;
    }
    let axis = |name: &str, is_log: bool| match is_log {
        true => format!("{name} (logarithmic)"),
        false => name.to_owned(),
    };
    let name = fit(&axis(&panel.axis, up.is_log), right - x0, SMALL + 1.0);
    canvas.text(&name, (x0 + 8.0, top - 16.0), Anchor::Left, SMALL + 1.0, Ink::Text)?;
    for value in up.ticks() {
        let y = up.at(value);
        canvas.line(&[(left, y), (right, y)], Ink::Grid, 1)?;
        canvas.text(&text::tick(value), (left - 8.0, y), Anchor::Right, SMALL, Ink::Muted)?;
    }
    axis_below(canvas, panel, &across, bottom)?;
    let name = axis(&panel.axis_below, across.is_log);
    canvas.text(&name, (right, bottom + 36.0), Anchor::Right, SMALL + 1.0, Ink::Text)?;
    canvas.line(&[(left, bottom), (right, bottom)], Ink::Muted, 1)?;
    panel.series.iter().try_for_each(|it| draw_series(canvas, it, &across, &up))
}

/// Draws the marks below a panel, those whose names do not overlap.
fn axis_below(canvas: &Canvas<'_>, panel: &Panel, across: &Scale, bottom: f64) -> Result<()> {
    let own = || across.ticks().into_iter().map(|value| (value, text::tick(value))).collect();
    let marks = panel.marks.clone().unwrap_or_else(own);
    let mut free = f64::NEG_INFINITY;
    for (value, name) in marks {
        let x = across.at(value);
        canvas.line(&[(x, bottom), (x, bottom + 4.0)], Ink::Muted, 1)?;
        let half = width_of(&name, SMALL) / 2.0;
        if x - half >= free {
            let middle = x.min(WIDTH - half - 2.0);
            canvas.text(&name, (middle, bottom + 15.0), Anchor::Middle, SMALL, Ink::Muted)?;
            free = x + half + 6.0;
        }
    }
    Ok(())
}

fn draw_series(canvas: &Canvas<'_>, series: &Series, across: &Scale, up: &Scale) -> Result<()> {
    let ink = Ink::Series(series.slot);
    let at = |x: f64, y: f64| (across.at(x), up.at(y));
    let points = &series.points;
    let is_spread = points.iter().any(|(_, it)| it.rounds > 1);
    if points.len() >= DENSE && is_spread {
        let lows = points.iter().map(|(x, it)| at(*x, it.low));
        let highs = points.iter().rev().map(|(x, it)| at(*x, it.high));
        canvas.band(&lows.chain(highs).collect::<Vec<_>>(), ink)?;
    }
    let middles: Vec<(f64, f64)> = points.iter().map(|(x, it)| at(*x, it.median)).collect();
    if middles.len() > 1 {
        canvas.line(&middles, ink, 2)?;
    }
    if points.len() >= DENSE {
        return Ok(());
    }
    for ((value, spread), middle) in points.iter().zip(middles) {
        let [low, high] = [spread.low, spread.high].map(|it| at(*value, it));
        if low.1 - high.1 >= 2.0 {
            canvas.line(&[low, high], ink, 1)?;
            for (x, y) in [low, high] {
                canvas.line(&[(x - 3.0, y), (x + 3.0, y)], ink, 1)?;
            }
        }
        canvas.mark(middle, series.slot)?;
    }
    Ok(())
}
