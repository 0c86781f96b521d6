//! Plots as inline SVG.
//!
//! Values are shown on hover: invisible areas over the marks have `<title>` elements, which need no script. Colours are fixed values here; the page's style sheet replaces them for dark screens. Each plot is drawn twice, for wide
//! screens and for phones, because scaling one drawing would make its text too large or too small.

use crate::axis::Axis;
use crate::table::Untrusted;
use maud::{Markup, PreEscaped, html};
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, PathElement, Polygon, RGBColor, Rectangle,
    SVGBackend, ShapeStyle, TextStyle,
};
use plotters::style::{Color, IntoFont, TRANSPARENT};
use std::ops::Range;

/// Colour of the main series.
pub(crate) const BLUE: RGBColor = RGBColor(0x25, 0x63, 0xEB);
/// Colour of the second series.
pub(crate) const ORANGE: RGBColor = RGBColor(0xB4, 0x53, 0x09);
/// Colour of the third series.
pub(crate) const GREEN: RGBColor = RGBColor(0x04, 0x78, 0x57);
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
    /// Invisible areas over the whole height, which show a text on hover: start and end on the x axis, and the text.
    HoverColumns(Vec<(f64, f64, String)>),
    /// Invisible areas over the whole width, which show a text on hover: row, and the text.
    HoverRows(Vec<(f64, String)>),
}

/// The width of an area for hovering, at least, in CSS pixels.
const HOVER_WIDTH: u32 = 6;

/// Groups consecutive items, so that an area for each group is wide enough to hover over. `column` returns the start, the end and
/// the text of a group.
pub(crate) fn hover_columns<T>(
    size: Size,
    items: &[T],
    column: impl Fn(&[T]) -> Option<(f64, f64, String)>,
) -> PlotMark {
    let columns_max = usize::try_from(size.width / HOVER_WIDTH).unwrap_or(1).max(1);
    let group_size = items.len().div_ceil(columns_max).max(1);
    // No group has fewer items, so that the last area is as wide as the others.
    let groups = items.len() / group_size;
    let start = |group: usize| group * items.len() / groups.max(1);
    let group = |group| items.get(start(group)..start(group + 1));
    PlotMark::HoverColumns((0..groups).filter_map(group).filter_map(column).collect())
}

/// The preferred side of a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LabelSide {
    Left,
    Right,
}

/// Draws a plot for wide screens and for phones.
pub(crate) fn wide_and_narrow(wide: Size, narrow: Size, draw: impl Fn(Size) -> Markup) -> Markup {
    html! { div.wide { (draw(wide)) } div.narrow { (draw(narrow)) } }
}

/// Draws a plot that takes half of a wide page.
pub(crate) fn half_width(draw: impl Fn(Size) -> Markup) -> Markup {
    wide_and_narrow(Size { width: 540, height: 300 }, Size { width: 350, height: 260 }, draw)
}

/// Draws a plot over the full width.
pub(crate) fn full_width(height: u32, draw: impl Fn(Size) -> Markup) -> Markup {
    wide_and_narrow(Size { width: 1110, height }, Size { width: 350, height: height.clamp(200, 260) }, draw)
}

/// Renders a plot with its title and the legend, pairs of a colour's CSS class and a word.
pub(crate) fn figure(title: &str, legend: &[(&str, &str)], plot: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (Untrusted(title)) }
            @if !legend.is_empty() { (legend_list(legend)) }
            (plot)
        }
    }
}

fn legend_list(keys: &[(&str, &str)]) -> Markup {
    html! { ul.legend { @for (class, word) in keys { li { i class=(class) {} (word) } } } }
}

/// Renders plots side by side.
pub(crate) fn side_by_side(figures: &[Markup]) -> Markup {
    html! { div.pair { @for figure in figures { (figure) } } }
}

/// Renders a plot as an `<svg>` element. `alternative` says in words what the plot shows.
pub(crate) fn svg(alternative: &str, size: Size, x: &Axis, y: &Axis, marks: &[PlotMark]) -> Markup {
    let mut drawn = String::new();
    match draw(&mut drawn, size, x, y, marks) {
        // The library writes an `<svg>` element, with all text in it escaped. Only what is inside is kept.
        Ok(areas) => html! {
            svg viewBox={ "0 0 " (size.width * SUBPIXELS) " " (size.height * SUBPIXELS) } role="img"
                aria-label=(Untrusted(alternative)) {
                (PreEscaped(content(&drawn)))
                @for HoverArea { across, down, text } in areas {
                    rect.hover x=(across.start) y=(down.start) width=(across.end - across.start)
                        height=(down.end - down.start) { title { (Untrusted(&text)) } }
                }
            }
        },
        Err(error) => html! { p { "This plot could not be drawn: " (Untrusted(&error.to_string())) } },
    }
}

/// Returns the content of an `<svg>` element.
fn content(element: &str) -> &str {
    let content = element.split_once('>').map_or("", |(_, rest)| rest);
    content.rsplit_once("</svg>").map_or("", |(content, _)| content)
}

/// An invisible rectangle that shows a text on hover, in drawing pixels.
struct HoverArea {
    across: Range<i32>,
    down: Range<i32>,
    text: String,
}

type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// Draws a plot as an `<svg>` element, and returns its areas for hovering.
fn draw(
    out: &mut String,
    size: Size,
    x: &Axis,
    y: &Axis,
    marks: &[PlotMark],
) -> Result<Vec<HoverArea>, DrawError> {
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
    let (across, down) = chart.plotting_area().get_pixel_range();
    let mut areas = Vec::new();
    for mark in marks {
        match mark {
            PlotMark::HoverColumns(columns) => areas.extend(columns.iter().map(|(from, to, text)| {
                let at = |value| chart.plotting_area().map_coordinate(&(value, y.from())).0;
                HoverArea { across: at(*from)..at(*to), down: down.clone(), text: text.clone() }
            })),
            PlotMark::HoverRows(rows) => areas.extend(rows.iter().map(|(row, text)| {
                let at = |value| chart.plotting_area().map_coordinate(&(x.from(), value)).1;
                HoverArea { across: across.clone(), down: at(row + 0.5)..at(row - 0.5), text: text.clone() }
            })),
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
    area.present()?;
    Ok(areas.into_iter().filter(|area| !area.across.is_empty() && !area.down.is_empty()).collect())
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
