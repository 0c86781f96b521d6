//! Charts as SVG files, with a white background, so that they suit light and dark pages.

use crate::error::LabError;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, LineSeries, PathElement, RGBColor, Rectangle,
    SVGBackend,
};
use plotters::style::{Color, IntoFont, TextStyle, WHITE};

/// Six distinct colours, then lighter shades of some: of the grey, twice of the blue, and twice of the orange.
const COLOURS: [RGBColor; 11] = [
    RGBColor(0x25, 0x63, 0xEB),
    RGBColor(0xD9, 0x77, 0x06),
    RGBColor(0x05, 0x96, 0x69),
    RGBColor(0xDC, 0x26, 0x26),
    RGBColor(0x7C, 0x3A, 0xED),
    RGBColor(0x4B, 0x55, 0x63),
    RGBColor(0x9C, 0xA3, 0xAF),
    RGBColor(0x60, 0xA5, 0xFA),
    RGBColor(0xBF, 0xDB, 0xFE),
    RGBColor(0xFB, 0xBF, 0x24),
    RGBColor(0xFD, 0xE6, 0x8A),
];
const INK: RGBColor = RGBColor(0x37, 0x41, 0x51);
const GRID: RGBColor = RGBColor(0xE5, 0xE7, 0xEB);
/// The size of a chart. A chart of many rows is higher.
const SIZE: (u32, u32) = (900, 420);
/// The height of a row, at least, and that of a chart's other parts.
const ROW_HEIGHT: u32 = 14;
const FRAME_HEIGHT: u32 = 80;

/// An axis: its title, which is the quantity with its unit, and its range.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartAxis {
    title: &'static str,
    /// The lowest value; above 0 on a logarithmic axis.
    from: f64,
    /// The highest value.
    to: f64,
    is_logarithmic: bool,
    /// For an axis of named rows: the labels of the values 0, 1, 2 and so on.
    names: Vec<String>,
}

impl ChartAxis {
    pub fn linear(title: &'static str, from: f64, to: f64) -> Self {
        Self { title, from, to, is_logarithmic: false, names: Vec::new() }
    }

    pub fn logarithmic(title: &'static str, from: f64, to: f64) -> Self {
        Self { is_logarithmic: true, ..Self::linear(title, from, to) }
    }

    /// An axis of named rows. A row with an empty name has no label.
    pub fn rows(names: &[&str]) -> Self {
        let count = f64::from(u32::try_from(names.len()).unwrap_or(0));
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { names, ..Self::linear("", -0.6, count - 0.4) }
    }

    /// The coordinate at which a value is drawn.
    fn coordinate(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    /// The label at a coordinate.
    fn label(&self, coordinate: f64) -> String {
        if !self.names.is_empty() {
            let name =
                self.names.iter().enumerate().find(|(row, _)| (coordinate - row_value(*row)).abs() < 0.01);
            return name.map_or_else(String::new, |(_, name)| name.clone());
        }
        let value = if self.is_logarithmic { 10f64.powf(coordinate) } else { coordinate };
        short_number(value)
    }

    /// The range of coordinates.
    fn range(&self) -> std::ops::Range<f64> {
        self.coordinate(self.from)..self.coordinate(self.to)
    }
}

fn row_value(row: usize) -> f64 {
    f64::from(u32::try_from(row).unwrap_or(u32::MAX))
}

/// A number with a short unit: 1.5k, 20M.
fn short_number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 0.999e9 => (value / 1e9, "G"),
        v if v >= 0.999e6 => (value / 1e6, "M"),
        v if v >= 0.999e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// The values of a series, and the way to draw them.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line through points.
    Line(Vec<(f64, f64)>),
    /// A line through dots.
    Dotted(Vec<(f64, f64)>),
    /// Small dots.
    Points(Vec<(f64, f64)>),
    /// A thin line, for expected values.
    Expected(Vec<(f64, f64)>),
    /// Horizontal bars: start, end, and row.
    Spans(Vec<(f64, f64, f64)>),
}

#[derive(Clone, Debug, PartialEq)]
struct Series {
    name: String,
    colour: usize,
    mark: Mark,
}

/// A chart with two axes and a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    x: ChartAxis,
    y: ChartAxis,
    series: Vec<Series>,
}

impl Chart {
    pub fn new(x: ChartAxis, y: ChartAxis) -> Self {
        Self { x, y, series: Vec::new() }
    }

    /// Adds a series, which is drawn over earlier ones in the colour with this number. Series of equal name and colour
    /// share a label in the legend. A series with an empty name has no label.
    pub fn add(&mut self, name: &str, colour: usize, mark: Mark) {
        self.series.push(Series { name: name.to_owned(), colour, mark });
    }

    /// The chart as an SVG document. Fails if the range of an axis is empty.
    pub fn svg(&self, name: &str) -> Result<String, LabError> {
        let failed = |why: String| LabError::failed(format_args!("drawing {name}"), why);
        if [self.x.range(), self.y.range()].iter().any(|range| !range.start.is_finite() || range.is_empty()) {
            return Err(failed(format!(
                "the axes have the ranges {:?} and {:?}",
                self.x.range(),
                self.y.range()
            )));
        }
        let mut out = String::new();
        self.draw(&mut out).map_err(|error| failed(error.to_string()))?;
        Ok(out)
    }

    fn draw(&self, out: &mut String) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let rows_height = u32::try_from(self.y.names.len()).unwrap_or(0).saturating_mul(ROW_HEIGHT);
        let size = (SIZE.0, SIZE.1.max(rows_height.saturating_add(FRAME_HEIGHT)));
        let area: DrawingArea<SVGBackend<'_>, Shift> = SVGBackend::with_string(out, size).into_drawing_area();
        area.fill(&WHITE)?;
        let font = TextStyle::from(("sans-serif", 14).into_font()).color(&INK);
        let name_length = self.y.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let left = 60.max(u32::try_from(name_length).unwrap_or(0) * 8 + 16).min(SIZE.0 / 3);
        let mut chart = ChartBuilder::on(&area)
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(left)
            .build_cartesian_2d(self.x.range(), self.y.range())?;
        let (rows, is_named) = (self.y.names.len(), !self.y.names.is_empty());
        let mut mesh = chart.configure_mesh();
        if is_named {
            mesh.disable_y_mesh();
        }
        mesh.light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font.clone())
            .axis_desc_style(font.clone())
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .x_labels(12)
            .y_labels(if is_named { rows * 2 } else { 10 })
            .x_label_formatter(&|coordinate| self.x.label(*coordinate))
            .y_label_formatter(&|coordinate| self.y.label(*coordinate))
            .draw()?;
        let mut labelled: Vec<(&str, usize)> = Vec::new();
        for series in &self.series {
            let colour = COLOURS[series.colour % COLOURS.len()];
            let placed = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
                points.iter().map(|(x, y)| (self.x.coordinate(*x), self.y.coordinate(*y))).collect()
            };
            let drawn = match &series.mark {
                Mark::Line(points) => {
                    chart.draw_series(LineSeries::new(placed(points), colour.stroke_width(2)))?
                }
                Mark::Dotted(points) => {
                    let points = placed(points);
                    chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                }
                Mark::Points(points) => {
                    let dots = placed(points).into_iter();
                    chart.draw_series(dots.map(|point| Circle::new(point, 2, colour.mix(0.6).filled())))?
                }
                Mark::Expected(points) => {
                    chart.draw_series(LineSeries::new(placed(points), colour.mix(0.5).stroke_width(1)))?
                }
                Mark::Spans(spans) => {
                    let placed = |span: &(f64, f64, f64)| {
                        let (from, to, row) = span;
                        ((self.x.coordinate(*from), row - 0.35), (self.x.coordinate(*to), row + 0.35))
                    };
                    // The line makes very short spans visible.
                    chart.draw_series(spans.iter().map(placed).map(|(from, to)| {
                        PathElement::new(vec![from, (from.0, to.1)], colour.stroke_width(1))
                    }))?;
                    chart.draw_series(
                        spans
                            .iter()
                            .map(placed)
                            .map(|(from, to)| Rectangle::new([from, to], colour.filled())),
                    )?
                }
            };
            let key = (series.name.as_str(), series.colour);
            if !series.name.is_empty() && !labelled.contains(&key) {
                labelled.push(key);
                drawn.label(series.name.as_str()).legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(3))
                });
            }
        }
        if !labelled.is_empty() {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .background_style(WHITE.mix(0.8))
                .border_style(GRID)
                .label_font(font)
                .draw()?;
        }
        drop(chart);
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_a_complete_document_with_all_names() {
        let mut chart =
            Chart::new(ChartAxis::linear("time, s", 0.0, 10.0), ChartAxis::linear("share, %", 0.0, 100.0));
        chart.add("A", 0, Mark::Line(vec![(0.0, 10.0), (10.0, 90.0)]));
        chart.add("B", 1, Mark::Dotted(vec![(5.0, 50.0)]));
        chart.add("", 1, Mark::Expected(vec![(0.0, 50.0), (10.0, 50.0)]));
        let svg = chart.svg("shares").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["time, s", "share, %", "A", "B"] {
            assert!(svg.contains(text), "{text}");
        }
        let rows = Chart::new(ChartAxis::linear("time, s", 0.0, 1.0), ChartAxis::rows(&["core 0", "core 1"]));
        assert!(rows.svg("timeline").unwrap().contains("core 1"));
        let nothing = Chart::new(ChartAxis::linear("x", 1.0, 1.0), ChartAxis::logarithmic("y", 1.0, 10.0));
        assert!(matches!(nothing.svg("nothing"), Err(LabError::Failed { .. })));
    }

    #[test]
    fn numbers_are_short() {
        let numbers =
            [(0.0, "0"), (0.5, "0.5"), (100.0, "100"), (1500.0, "1.5k"), (2e7, "20M"), (1e11, "100G")];
        for (value, text) in numbers {
            assert_eq!(short_number(value), text);
        }
        assert_eq!(ChartAxis::logarithmic("x", 1.0, 1e6).label(3.0), "1k");
    }
}
