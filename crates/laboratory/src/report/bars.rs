//! Bars: a group for each row, a bar for each system, with whiskers from the smallest to the
//! largest round. They lie, so that names of any length and number have room.

use super::canvas::{Anchor, Canvas, Drawing, LETTERS, Legend, SMALL, WIDTH, draw, fit, width_of};
use super::colour::{self, Ink};
use super::grid::{Cell, Grid, Row, shown};
use super::scale::Scale;
use super::text;
use crate::error::Result;

/// Pixels from bar to bar, and between groups.
const STEP: f64 = 16.0;
const GAP: f64 = 14.0;
/// Room for a number right of the longest bar.
const NUMBER: f64 = 76.0;
/// Room for the names of the groups, at most.
const NAMES: f64 = 210.0;

/// Draws the bars of a grid.
pub(super) fn bars(grid: &Grid, title: &str, axis: &str) -> Result<Drawing> {
    let slots = colour::assign(&grid.systems);
    let pairs: Vec<(String, u8)> = grid.systems.iter().cloned().zip(slots.clone()).collect();
    let legend = Legend::of(&pairs);
    let cells = || grid.rows.iter().flat_map(|row| row.cells.iter().flatten());
    let values: Vec<f64> =
        cells().flat_map(|it| [it.spread.low, it.spread.median, it.spread.high]).collect();
    let names = grid.rows.iter().map(|row| width_of(&row.label, LETTERS)).fold(60.0, f64::max);
    let left = names.min(NAMES) + 18.0;
    let scale = Scale::of_amounts(&values, 30.0, left, WIDTH - NUMBER);
    let top = legend.height + 4.0;
    let bottom = top + grid.rows.iter().map(height).sum::<f64>();
    draw(title, bottom + 46.0, |canvas| {
        legend.draw(canvas, false)?;
        axis_below(canvas, &scale, [top, bottom], axis)?;
        let mut y = top;
        for row in &grid.rows {
            group(canvas, row, &slots, &scale, [left, y])?;
            y += height(row);
        }
        canvas.line(&[(left, top), (left, bottom)], Ink::Muted, 1)
    })
}

/// Height of a group; a system without a number has no bar in it.
fn height(row: &Row) -> f64 {
    row.cells.iter().flatten().count() as f64 * STEP + GAP
}

/// Draws the scale below the bars, and its lines behind them.
fn axis_below(
    canvas: &Canvas<'_>,
    scale: &Scale,
    [top, bottom]: [f64; 2],
    axis: &str,
) -> Result<()> {
    let mut free = f64::NEG_INFINITY;
    for value in scale.ticks() {
        let x = scale.at(value);
        canvas.line(&[(x, top), (x, bottom)], Ink::Grid, 1)?;
        let label = text::tick(value);
        let half = width_of(&label, SMALL) / 2.0;
        if x - half > free {
            canvas.text(&label, (x, bottom + 13.0), Anchor::Middle, SMALL, Ink::Muted)?;
            free = x + half + 6.0;
        }
    }
    let axis = if scale.is_log { format!("{axis} (logarithmic)") } else { axis.to_owned() };
    let end = WIDTH - NUMBER;
    canvas.text(&axis, (end, bottom + 33.0), Anchor::Right, LETTERS, Ink::Text)
}

/// Draws the bars of one row.
fn group(
    canvas: &Canvas<'_>,
    row: &Row,
    slots: &[u8],
    scale: &Scale,
    [left, top]: [f64; 2],
) -> Result<()> {
    let label = fit(&shown(&row.label), NAMES, LETTERS);
    let middle = top + height(row) / 2.0;
    canvas.text(&label, (left - 10.0, middle), Anchor::Right, LETTERS, Ink::Text)?;
    let mut y = top + GAP / 2.0;
    for (cell, slot) in row.cells.iter().zip(slots) {
        if let Some(cell) = cell {
            bar(canvas, cell, *slot, scale, [left, y + STEP / 2.0])?;
            y += STEP;
        }
    }
    Ok(())
}

/// Draws one bar, its whisker and its number.
fn bar(
    canvas: &Canvas<'_>,
    cell: &Cell,
    slot: u8,
    scale: &Scale,
    [left, y]: [f64; 2],
) -> Result<()> {
    let [low, middle, high] =
        [cell.spread.low, cell.spread.median, cell.spread.high].map(|it| scale.at(it));
    canvas.rect((left, y - 6.0), (middle.max(left + 1.0), y + 6.0), Ink::Series(slot))?;
    if high - low >= 2.0 {
        canvas.line(&[(low, y), (middle, y)], Ink::OnBar, 1)?;
        canvas.line(&[(middle, y), (high, y)], Ink::Text, 1)?;
        for (x, ink) in [(low, Ink::OnBar), (high, Ink::Text)] {
            canvas.line(&[(x, y - 3.0), (x, y + 3.0)], ink, 1)?;
        }
    }
    let number = text::number(cell.spread.median);
    canvas.text(&number, (high.max(middle) + 6.0, y), Anchor::Left, SMALL, Ink::Text)
}
