//! Plots as inline SVG.
//!
//! Colours are fixed values here; the page's style sheet replaces them for dark screens. Each plot is drawn twice, for wide
//! screens and for phones, because scaling one drawing would make its text too large or too small.

use crate::axis::Axis;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, PathElement, Polygon, RGBColor, Rectangle,
    SVGBackend, ShapeStyle, TextStyle,
};
use plotters::style::{Color, IntoFont, TRANSPARENT};

/// Colour of the main series.
pub(crate) const BLUE: RGBColor = RGBColor(0x25, 0x63, 0xEB);
/// Colour of the second series.
pub(crate) const ORANGE: RGBColor = RGBColor(0xD9, 0x77, 0x06);
/// Colour of the third series.
pub(crate) const GREEN: RGBColor = RGBColor(0x05, 0x96, 0x69);
/// Colour of alarms.
pub(crate) const RED: RGBColor = RGBColor(0xDC, 0x26, 0x26);
const INK: RGBColor = RGBColor(0x4B, 0x55, 0x63);
const GRID: RGBColor = RGBColor(0xE5, 0xE7, 0xEB);
const AXIS: RGBColor = RGBColor(0x9C, 0xA3, 0xAF);

/// Drawing pixels per CSS pixel. Plotters draws on whole pixels, so a finer grid makes curves smooth.
const SUBPIXELS: u32 = 4;

/// The size of a drawing in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Size {
    /// The number of ticks of a time axis.
    pub(crate) fn ticks(self) -> usize {
        if self.width < 480 {
            5
        } else if self.width < 800 {
            6
        } else {
            10
        }
    }
}

/// An element of a plot, in the coordinates of its axes.
#[derive(Clone, Debug)]
pub(crate) enum PlotMark {
    /// A line, and its width in pixels.
    Line(Vec<(f64, f64)>, RGBColor, f64),
    /// The area between a line and the lower end of the y axis.
    Area(Vec<(f64, f64)>, RGBColor),
    /// Vertical bars: start and end on the x axis, and height.
    Bars(Vec<(f64, f64, f64)>, RGBColor),
    /// Horizontal bars: row, length, and the text after the bar.
    Rows(Vec<(f64, f64, String)>, RGBColor),
    /// Dots, and their radius in pixels.
    Dots(Vec<(f64, f64)>, RGBColor, f64),
    /// Vertical error bars: x, start and end on the y axis.
    Whiskers(Vec<(f64, f64, f64)>, RGBColor),
    /// Intervals of the x axis, shaded over the whole height.
    Bands(Vec<(f64, f64)>, RGBColor),
    /// A straight line between two points.
    Rule((f64, f64), (f64, f64), RGBColor),
    /// Text above a point, on one side of it.
    Label((f64, f64), RGBColor, String, LabelSide),
}

/// The preferred side of a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LabelSide {
    Left,
    Right,
}

/// Draws a plot for wide screens and for phones.
pub(crate) fn wide_and_narrow(wide: Size, narrow: Size, draw: impl Fn(Size) -> String) -> String {
    format!("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>", draw(wide), draw(narrow))
}

/// Draws a plot that takes half of a wide page.
pub(crate) fn half_width(draw: impl Fn(Size) -> String) -> String {
    wide_and_narrow(Size { width: 540, height: 300 }, Size { width: 350, height: 260 }, draw)
}

/// Draws a plot over the full width.
pub(crate) fn full_width(height: u32, draw: impl Fn(Size) -> String) -> String {
    wide_and_narrow(Size { width: 1110, height }, Size { width: 350, height: height.clamp(200, 260) }, draw)
}

/// Renders a plot as an `<svg>` element.
pub(crate) fn svg(size: Size, x: &Axis, y: &Axis, marks: &[PlotMark]) -> String {
    let mut out = String::new();
    let drawn = draw(&mut out, size, x, y, marks);
    match drawn {
        // An `<svg>` element in HTML needs no namespace.
        Ok(()) => out.replace(" xmlns=\"http://www.w3.org/2000/svg\"", ""),
        Err(error) => {
            format!("<p>This plot could not be drawn: {}</p>", crate::html::escape(&error.to_string()))
        }
    }
}

type DrawError = DrawingAreaErrorKind<std::io::Error>;

fn draw(out: &mut String, size: Size, x: &Axis, y: &Axis, marks: &[PlotMark]) -> Result<(), DrawError> {
    let area: DrawingArea<SVGBackend<'_>, Shift> =
        SVGBackend::with_string(out, (size.width * SUBPIXELS, size.height * SUBPIXELS)).into_drawing_area();
    // The left margin fits the widest label, at about 8 pixels a character, and the title.
    let title = if y.title.is_empty() { 0 } else { 22 };
    let most = size.width / 3;
    let left = (u32::try_from(y.widest().max(4)).unwrap_or(most) * 8 + 12 + title).min(most);
    let label = ("sans-serif", 15 * SUBPIXELS).into_font();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(10 * SUBPIXELS)
        .margin_right(18 * SUBPIXELS)
        .margin_bottom(2 * SUBPIXELS)
        .y_label_area_size(left * SUBPIXELS)
        .x_label_area_size(if x.title.is_empty() { 26 } else { 46 } * SUBPIXELS)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(SUBPIXELS))
        .axis_style(AXIS.stroke_width(SUBPIXELS))
        .set_all_tick_mark_size(4 * SUBPIXELS)
        .label_style(TextStyle::from(label.clone()).color(&INK))
        .axis_desc_style(TextStyle::from(label.clone()).color(&INK))
        .x_desc(x.title.as_str())
        .y_desc(y.title.as_str())
        .draw()?;
    for mark in marks {
        match mark {
            PlotMark::Line(points, color, width) => {
                chart.draw_series([PathElement::new(points.clone(), stroke(*color, *width))])?;
            }
            PlotMark::Area(points, color) => {
                let (Some(first), Some(last)) = (points.first(), points.last()) else { continue };
                let mut outline = points.clone();
                outline.extend([(last.0, y.from()), (first.0, y.from())]);
                chart.draw_series([Polygon::new(outline, color.mix(0.18))])?;
            }
            PlotMark::Bars(bars, color) => {
                chart.draw_series(bars.iter().filter(|bar| bar.2 > 0.0).map(|(from, to, height)| {
                    let mut bar =
                        Rectangle::new([(*from, y.from()), (*to, *height)], color.mix(0.75).filled());
                    bar.set_margin(0, 0, SUBPIXELS / 2, SUBPIXELS / 2);
                    bar
                }))?;
            }
            PlotMark::Rows(rows, color) => {
                chart.draw_series(rows.iter().map(|(row, length, _)| {
                    Rectangle::new([(x.from(), row - 0.32), (*length, row + 0.32)], color.mix(0.75).filled())
                }))?;
                for (row, length, text) in rows {
                    write_label(&chart, (*length, *row), text, INK, (LabelSide::Right, false))?;
                }
            }
            PlotMark::Dots(points, color, radius) => {
                let radius = pixels(*radius);
                let points = without_overlaps(&chart, points);
                chart.draw_series(
                    points.iter().map(|point| Circle::new(*point, radius, color.mix(0.8).filled())),
                )?;
            }
            PlotMark::Whiskers(whiskers, color) => {
                let style = stroke(*color, 1.5);
                let half = (x.to() - x.from()) / 110.0;
                chart.draw_series(whiskers.iter().flat_map(|(at, from, to)| {
                    [
                        PathElement::new(vec![(*at, *from), (*at, *to)], style),
                        PathElement::new(vec![(at - half, *from), (at + half, *from)], style),
                        PathElement::new(vec![(at - half, *to), (at + half, *to)], style),
                    ]
                }))?;
            }
            PlotMark::Bands(bands, color) => {
                chart.draw_series(bands.iter().map(|(from, to)| {
                    Rectangle::new([(*from, y.from()), (*to, y.to())], color.mix(0.14).filled())
                }))?;
            }
            PlotMark::Rule(from, to, color) => {
                chart.draw_series([PathElement::new(vec![*from, *to], stroke(*color, 1.5))])?;
            }
            PlotMark::Label(at, color, text, side) => write_label(&chart, *at, text, *color, (*side, true))?,
        }
    }
    drop(chart);
    area.present()
}

type Chart<'a, 'b> =
    plotters::chart::ChartContext<'a, SVGBackend<'b>, plotters::coord::cartesian::Cartesian2d<Axis, Axis>>;

/// Omits points that almost coincide with an earlier one.
fn without_overlaps(chart: &Chart<'_, '_>, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut taken = std::collections::BTreeSet::new();
    let near = |point: &(f64, f64)| {
        let (x, y) = chart.plotting_area().map_coordinate(point);
        (x / pixels(1.5), y / pixels(1.5))
    };
    points.iter().copied().filter(|point| taken.insert(near(point))).collect()
}

/// Writes a label beside a point, optionally above it. If the preferred side has no room, the label is on the other side.
fn write_label(
    chart: &Chart<'_, '_>,
    at: (f64, f64),
    text: &str,
    color: RGBColor,
    (side, above): (LabelSide, bool),
) -> Result<(), DrawError> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let area = chart.plotting_area();
    let (left, top) = area.map_coordinate(&at);
    let (across, down) = area.get_pixel_range();
    let width = i32::try_from(text.chars().count()).unwrap_or(0) * pixels(7.0);
    let room = |side| match side {
        LabelSide::Right => left + width < across.end,
        LabelSide::Left => left - width > across.start,
    };
    let right = room(LabelSide::Right) && (side == LabelSide::Right || !room(LabelSide::Left));
    let (h, shift) = if right { (HPos::Left, pixels(6.0)) } else { (HPos::Right, -pixels(6.0)) };
    let v = if above { VPos::Bottom } else { VPos::Center };
    let style = TextStyle::from(("sans-serif", 15 * SUBPIXELS).into_font()).color(&color).pos(Pos::new(h, v));
    // Coordinates of the stripped area start at its own corner.
    let at = (left + shift - across.start, top - down.start);
    area.strip_coord_spec().draw_text(text, &style, at)
}

fn stroke(color: RGBColor, width: f64) -> ShapeStyle {
    ShapeStyle { color: color.to_rgba(), filled: false, stroke_width: pixels(width).unsigned_abs() }
}

#[expect(clippy::cast_possible_truncation, reason = "a few pixels")]
fn pixels(css: f64) -> i32 {
    (css * f64::from(SUBPIXELS)).round() as i32
}
