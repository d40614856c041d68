//! The drawing of a figure, as SVG, by plotters.

use super::colour::{self, Ink};
use super::text::html;
use crate::error::{LabError, Result};
use plotters::coord::Shift;
use plotters::element::{Circle, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text};
use plotters::prelude::{Color, DrawingArea, IntoDrawingArea, IntoFont, SVGBackend, TextStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width of every figure.
pub(super) const WIDTH: f64 = 820.0;
/// Size of letters, and of small ones.
pub(super) const LETTERS: f64 = 14.0;
pub(super) const SMALL: f64 = 12.0;

/// A point in pixels.
pub(super) type Point = (f64, f64);
type Pixel = (i32, i32);

/// A drawn figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Drawing {
    /// The elements, with classes for colours.
    body: String,
    size: [f64; 2],
    title: String,
}

impl Drawing {
    /// Within a page, which has the styles.
    pub(super) fn within(&self) -> String {
        self.svg("", "")
    }

    /// As a file.
    pub(super) fn alone(&self) -> String {
        let [width, height] = self.size;
        let size = format!(" width=\"{width}\" height=\"{height}\"");
        self.svg(&size, &format!("<style>{}</style>\n", colour::style_alone()))
    }

    fn svg(&self, size: &str, style: &str) -> String {
        let [width, height] = self.size;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\"{size} \
             role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, \
             'Noto Sans', 'DejaVu Sans', sans-serif\">\n<title>{}</title>\n{style}{}</svg>\n",
            html(&self.title),
            self.body
        )
    }
}

/// Place of a text from its point on.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Left,
    Middle,
    Right,
}

/// A figure that is being drawn.
pub(super) struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

/// Draws a figure of this height.
pub(super) fn draw(
    title: &str,
    height: f64,
    fill: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<Drawing> {
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
        let canvas = Canvas(backend.into_drawing_area());
        canvas.rect((0.0, 0.0), (WIDTH, height), Ink::Background)?;
        fill(&canvas)?;
        canvas.0.present().map_err(failed)?;
    }
    let inside = svg.split_once('>').map_or("", |(_, inside)| inside);
    let inside = inside.trim_end().trim_end_matches("</svg>").trim_start();
    let plain = inside.replace(" font-family=\"sans-serif\"", "").replace(" opacity=\"1\"", "");
    let body = colour::classes(&plain).replace("\n</text>", "</text>").replace(" \"", "\"");
    Ok(Drawing { body, size: [WIDTH, height.floor()], title: title.to_owned() })
}

fn failed(why: impl std::fmt::Display) -> LabError {
    LabError::failed("drawing", "a figure", why)
}

fn pixel((x, y): Point) -> Pixel {
    (x.round() as i32, y.round() as i32)
}

impl<'a> Canvas<'a> {
    fn element<E>(&self, element: &E) -> Result<()>
    where
        for<'b> &'b E: PointCollection<'b, Pixel>,
        E: Drawable<SVGBackend<'a>>,
    {
        self.0.draw(element).map_err(failed)
    }

    pub(super) fn line(&self, points: &[Point], ink: Ink, width: u32) -> Result<()> {
        let points: Vec<Pixel> = points.iter().copied().map(pixel).collect();
        self.element(&PathElement::new(points, ink.marker().stroke_width(width)))
    }

    pub(super) fn rect(&self, from: Point, to: Point, ink: Ink) -> Result<()> {
        self.element(&Rectangle::new([pixel(from), pixel(to)], ink.marker().filled()))
    }

    /// A filled area through which the figure behind it can be seen.
    pub(super) fn band(&self, points: &[Point], ink: Ink) -> Result<()> {
        let points: Vec<Pixel> = points.iter().copied().map(pixel).collect();
        self.element(&Polygon::new(points, ink.marker().mix(0.2).filled()))
    }

    /// A mark of a system: also its form tells systems apart.
    pub(super) fn mark(&self, (x, y): Point, slot: u8) -> Result<()> {
        let ink = Ink::Series(slot);
        let form = |corners: &[Point]| {
            let points: Vec<Pixel> =
                corners.iter().map(|(dx, dy)| pixel((x + dx, y + dy))).collect();
            self.element(&Polygon::new(points, ink.marker().filled()))
        };
        match slot % 4 {
            0 => self.element(&Circle::new(pixel((x, y)), 4, ink.marker().filled())),
            1 => self.rect((x - 4.0, y - 4.0), (x + 4.0, y + 4.0), ink),
            2 => form(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
            _ => form(&[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)]),
        }
    }

    /// A text; in height, its middle is at the point.
    pub(super) fn text(
        &self,
        text: &str,
        at: Point,
        anchor: Anchor,
        size: f64,
        ink: Ink,
    ) -> Result<()> {
        let anchor = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        // Plotters makes letters smaller by this factor.
        let font = ("sans-serif", size * 1.24).into_font();
        let colour = ink.marker();
        let style = TextStyle::from(font).color(&colour);
        let style = style.pos(Pos::new(anchor, VPos::Center));
        self.element(&Text::new(text.to_owned(), pixel(at), style))
    }
}

/// Returns about how wide a text is.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}

/// Returns the text without its end if it is wider than this.
pub(super) fn fit(text: &str, width: f64, size: f64) -> String {
    if width_of(text, size) <= width {
        return text.to_owned();
    }
    let count = (width / (size * 0.56)) as usize;
    text.chars().take(count.saturating_sub(1)).chain(['…']).collect()
}

/// Names and colours of the systems above a figure, in as many lines as they need.
pub(super) struct Legend {
    entries: Vec<(String, u8, Point)>,
    pub height: f64,
}

impl Legend {
    pub(super) fn of(systems: &[(String, u8)]) -> Legend {
        let mut entries = Vec::new();
        let (mut x, mut y) = (8.0, 14.0);
        for (name, slot) in systems {
            let name = fit(name, WIDTH - 60.0, LETTERS);
            let width = width_of(&name, LETTERS) + 42.0;
            if x + width > WIDTH && x > 8.0 {
                (x, y) = (8.0, y + 22.0);
            }
            entries.push((name, *slot, (x, y)));
            x += width;
        }
        Legend { height: if entries.is_empty() { 0.0 } else { y + 16.0 }, entries }
    }

    /// Draws it, with the marks of lines or with squares of bars.
    pub(super) fn draw(&self, canvas: &Canvas<'_>, is_lines: bool) -> Result<()> {
        for (name, slot, (x, y)) in &self.entries {
            if is_lines {
                canvas.line(&[(*x, *y), (x + 20.0, *y)], Ink::Series(*slot), 2)?;
                canvas.mark((x + 10.0, *y), *slot)?;
            } else {
                canvas.rect((x + 4.0, y - 6.0), (x + 16.0, y + 6.0), Ink::Series(*slot))?;
            }
            canvas.text(name, (x + 26.0, *y), Anchor::Left, LETTERS, Ink::Text)?;
        }
        Ok(())
    }
}
