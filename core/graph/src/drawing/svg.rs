//! Pictures as SVG.

use super::layout::{HEADING_HEIGHT, PlacedBox};
use super::text::{shortened, width};
use super::tree::{BoxContent, DrawingTree, DrawnBox, DrawnPort};
use std::fmt::{Display, Write as _};
use weir_units::{escaped_lines, is_plain};

/// The sizes of the font: of names, and of classes and configurations.
pub(super) const FONT_SIZE: i64 = 12;
pub(super) const SMALL_FONT_SIZE: i64 = 11;
/// The most characters of a name and of a configuration in a box.
const NAME_MAX: usize = 30;
const CONFIGURATION_MAX: usize = 26;
/// The most characters of a configuration in the text that a box shows on hover.
const TOOLTIP_MAX: usize = 2_000;
/// The space around the picture.
const MARGIN: i64 = 24;
/// The height of the legend.
const LEGEND_HEIGHT: i64 = 34;
/// The radius of corners of lines.
const CORNER: i64 = 6;

/// The colours, for light and for dark screens: those of reports.
const STYLE: &str = "\
text{font-family:system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:12px;fill:#111827}
.name{font-weight:600}
.small{font-size:11px;fill:#4b5563}
.page{fill:#ffffff}
.box{fill:#ffffff;stroke:#6b7280}
.source{fill:#ecfdf5;stroke:#047857}
.sink{fill:#f3f4f6;stroke:#6b7280}
.store{fill:#fff7ed;stroke:#b45309}
.compound{fill:#eff6ff;stroke:#93b4f5}
.line{fill:none;stroke:#2563eb;stroke-width:1.5}
.pull{stroke:#b45309;stroke-dasharray:5 3}
.port{fill:#111827;stroke:#111827}
.hollow{fill:#ffffff}
.ring{fill:none;stroke:#111827}
@media(prefers-color-scheme:dark){
text{fill:#f3f4f6}
.small{fill:#9ca3af}
.page{fill:#111827}
.box{fill:#1f2937;stroke:#9ca3af}
.source{fill:#064e3b;stroke:#34d399}
.sink{fill:#374151;stroke:#9ca3af}
.store{fill:#431407;stroke:#f59e0b}
.compound{fill:#172033;stroke:#3b5b9d}
.line{stroke:#60a5fa}
.pull{stroke:#f59e0b}
.port{fill:#f9fafb;stroke:#f9fafb}
.hollow{fill:#111827}
.ring{stroke:#f9fafb}
}
";

/// The texts in a box.
pub(super) struct Caption {
    /// The name, or the class of an element without a name.
    pub name: String,
    /// The rest of the first line: the number of an element without a name, or the class of a compound element.
    pub suffix: String,
    /// The further lines.
    pub small: Vec<String>,
}

impl Caption {
    pub fn new(tree: &DrawingTree<'_>, index: usize) -> Self {
        let name = own_name(tree, index);
        match tree.boxes[index].content {
            BoxContent::Picture => Self { name: String::new(), suffix: String::new(), small: Vec::new() },
            BoxContent::Element(element) => {
                let declared = &tree.configuration.elements[element];
                let configuration = beginning(&declared.configuration, CONFIGURATION_MAX);
                let number = name.strip_prefix(&*declared.class).filter(|number| number.starts_with('@'));
                let (name, suffix, class) = match number {
                    Some(number) => (&*declared.class, number.to_owned(), None),
                    None => (name, String::new(), Some(one_line(&declared.class, NAME_MAX))),
                };
                let configuration = Some(configuration).filter(|text| !text.is_empty());
                let notes = tree.notes.get(&*declared.name).into_iter().flatten();
                let notes = notes.map(|note| beginning(note, CONFIGURATION_MAX));
                let small = class.into_iter().chain(configuration).chain(notes).collect();
                Self { name: one_line(name, NAME_MAX), suffix, small }
            }
            BoxContent::Compound(compound) => {
                let class = tree.configuration.compounds[compound].class.as_deref();
                let number =
                    class.and_then(|class| name.strip_prefix(class)).filter(|it| it.starts_with('@'));
                match (class, number) {
                    (Some(class), Some(number)) => {
                        let (name, suffix) = (one_line(class, NAME_MAX), number.to_owned());
                        Self { name, suffix, small: Vec::new() }
                    }
                    (class, _) => {
                        let class = class.map(|class| format!(":: {}", one_line(class, NAME_MAX)));
                        let suffix = class.unwrap_or_default();
                        Self { name: one_line(name, NAME_MAX), suffix, small: Vec::new() }
                    }
                }
            }
            BoxContent::Collapsed(compound, count) => {
                let class = tree.configuration.compounds[compound].class.as_deref().unwrap_or("{ … }");
                let plural = if count == 1 { "" } else { "s" };
                let small = vec![one_line(class, NAME_MAX), format!("{count} element{plural}")];
                Self { name: one_line(name, NAME_MAX), suffix: String::new(), small }
            }
        }
    }
}

/// Returns a character that does not change the display of others.
fn plain(c: char) -> char {
    if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }
}

/// Returns a name as one line, with a mark in place of a middle that is left out.
fn one_line(name: &str, characters_max: usize) -> String {
    shortened(&name.chars().map(plain).collect::<String>(), characters_max)
}

/// Returns the beginning of a configuration as one line, with a mark at its end if it is not all.
fn beginning(text: &str, characters_max: usize) -> String {
    // A configuration can have megabytes.
    let words: Vec<&str> = text.split_whitespace().take(characters_max + 1).collect();
    let line = words.join(" ");
    let mut characters = line.chars().map(plain);
    let mut beginning: String = characters.by_ref().take(characters_max).collect();
    if characters.next().is_some() {
        beginning.pop();
        beginning.push('…');
    }
    beginning
}

/// Returns the full name of an element or a compound element.
pub(super) fn full_name(tree: &DrawingTree<'_>, index: usize) -> String {
    let configuration = tree.configuration;
    match tree.boxes[index].content {
        BoxContent::Picture => String::new(),
        BoxContent::Element(element) => configuration.elements[element].name.to_string(),
        BoxContent::Compound(compound) | BoxContent::Collapsed(compound, _) => {
            configuration.compounds[compound].name.to_string()
        }
    }
}

/// Returns the name without that of the compound element around it.
fn own_name<'t>(tree: &'t DrawingTree<'_>, index: usize) -> &'t str {
    let configuration = tree.configuration;
    let (name, parent) = match tree.boxes[index].content {
        BoxContent::Picture => ("", 0),
        BoxContent::Element(element) => (&*configuration.elements[element].name, tree.boxes[index].parent),
        BoxContent::Compound(compound) | BoxContent::Collapsed(compound, _) => {
            (&*configuration.compounds[compound].name, tree.boxes[index].parent)
        }
    };
    let around = match tree.boxes[parent].content {
        BoxContent::Compound(compound) => &*configuration.compounds[compound].name,
        _ => "",
    };
    let inner = name.strip_prefix(around).and_then(|rest| rest.strip_prefix('/'));
    inner.filter(|_| !around.is_empty()).unwrap_or(name)
}

/// Returns the text that a box shows on hover: the declaration, and its place.
pub(super) fn tooltip(tree: &DrawingTree<'_>, index: usize) -> String {
    let configuration = tree.configuration;
    let text = match tree.boxes[index].content {
        BoxContent::Picture => String::new(),
        BoxContent::Element(element) => {
            let declared = &configuration.elements[element];
            format!("{}\n{declared}", declared.landmark)
        }
        BoxContent::Compound(compound) | BoxContent::Collapsed(compound, _) => {
            let declared = &configuration.compounds[compound];
            match &declared.class {
                Some(class) => format!("{} :: {class}", declared.name),
                None => declared.name.to_string(),
            }
        }
    };
    let count = text.chars().count();
    if count <= TOOLTIP_MAX {
        return escaped_lines(&text);
    }
    let beginning: String = text.chars().take(TOOLTIP_MAX).collect();
    format!("{}… ({} more characters)", escaped_lines(&beginning), count - TOOLTIP_MAX)
}

/// A text that is escaped for SVG.
struct Xml<'t>(&'t str);

impl Display for Xml<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                // XML has no such characters, also not escaped.
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Writes the picture.
pub(super) fn write(tree: &DrawingTree<'_>, placed: &[PlacedBox]) -> String {
    let picture = &placed[0];
    let legend = Legend::of(tree);
    let inner_width = picture.width.max(legend.width());
    let (width, height) = (inner_width + 2 * MARGIN, picture.height + 2 * MARGIN + LEGEND_HEIGHT);
    let count = tree.configuration.elements.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"A graph of {count} element{plural}\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let shift = (inner_width - picture.width) / 2;
    let _ = writeln!(out, "<g transform=\"translate({},{MARGIN})\">", MARGIN + shift);
    write_inside(tree, placed, 0, &mut out);
    let _ = writeln!(out, "</g>\n<g transform=\"translate({MARGIN},{})\">", height - MARGIN);
    legend.write(&mut out);
    out.push_str("</g>\n</svg>\n");
    out
}

/// Writes the boxes inside of a box, then the lines between them.
fn write_inside(tree: &DrawingTree<'_>, placed: &[PlacedBox], index: usize, out: &mut String) {
    let drawn = &tree.boxes[index];
    for (line, corners) in drawn.lines.iter().zip(&placed[index].lines) {
        let class = if line.pulls { "line pull" } else { "line" };
        let _ = write!(out, "<path class=\"{class}\" d=\"");
        write_path(corners, out);
        let connection = &tree.configuration.connections[line.connection];
        let name = |element: usize| &*tree.configuration.elements[element].name;
        let (from, to) = (connection.from, connection.to);
        let text = format!("{} [{}] -> [{}] {}", name(from.0), from.1, to.1, name(to.0));
        let _ = writeln!(out, "\"><title>{}</title></path>", Xml(&escaped_lines(&text)));
    }
    for &child in &drawn.children {
        let PlacedBox { x, y, width, height, .. } = &placed[child];
        let of = &tree.boxes[child];
        let class = box_class(of);
        let radius = if class == "compound" { 8 } else { 5 };
        let _ = writeln!(
            out,
            "<g transform=\"translate({x},{y})\"><title>{}</title>\n<rect class=\"{class}\" width=\"{width}\" \
             height=\"{height}\" rx=\"{radius}\"/>",
            Xml(&tooltip(tree, child))
        );
        match of.content {
            BoxContent::Compound(_) => {
                let caption = Caption::new(tree, child);
                let (x, y) = (placed[child].heading, HEADING_HEIGHT - 9);
                let _ = writeln!(
                    out,
                    "<text x=\"{x}\" y=\"{y}\"><tspan class=\"name\">{}</tspan><tspan class=\"small\" dx=\"{}\">{}</tspan></text>",
                    Xml(&caption.name),
                    if caption.suffix.starts_with(':') { 5 } else { 0 },
                    Xml(&caption.suffix)
                );
                write_inside(tree, placed, child, out);
            }
            _ => write_caption(&Caption::new(tree, child), *width, out),
        }
        for (port, x) in of.inputs.iter().zip(&placed[child].inputs) {
            write_port(*port, false, (*x, 0), out);
        }
        for (port, x) in of.outputs.iter().zip(&placed[child].outputs) {
            write_port(*port, true, (*x, *height), out);
        }
        out.push_str("</g>\n");
    }
}

fn write_caption(caption: &Caption, width: i64, out: &mut String) {
    let middle = width / 2;
    let mut y = 23;
    let _ = writeln!(
        out,
        "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\"><tspan class=\"name\">{}</tspan><tspan class=\"small\">{}\
         </tspan></text>",
        Xml(&caption.name),
        Xml(&caption.suffix)
    );
    for text in &caption.small {
        y += 15;
        let _ = writeln!(
            out,
            "<text class=\"small\" x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
            Xml(text)
        );
    }
}

/// Returns the style of a box, by its ports.
fn box_class(drawn: &DrawnBox) -> &'static str {
    let pulls = |ports: &[DrawnPort]| ports.first().is_some_and(|port| port.pulls);
    match drawn.content {
        BoxContent::Compound(_) | BoxContent::Collapsed(..) | BoxContent::Picture => "compound",
        BoxContent::Element(_) if drawn.inputs.is_empty() && drawn.outputs.is_empty() => "box",
        BoxContent::Element(_) if drawn.inputs.is_empty() => "source",
        BoxContent::Element(_) if drawn.outputs.is_empty() => "sink",
        BoxContent::Element(_) if !pulls(&drawn.inputs) && pulls(&drawn.outputs) => "store",
        BoxContent::Element(_) => "box",
    }
}

/// Writes a port at the border of a box: a triangle below an upper border, or a rectangle above a lower one.
fn write_port(port: DrawnPort, is_output: bool, (x, y): (i64, i64), out: &mut String) {
    let fill = if port.pulls { "port hollow" } else { "port" };
    if is_output {
        if port.is_agnostic {
            let _ = writeln!(out, "<path class=\"ring\" d=\"M{} {}h14v9h-14z\"/>", x - 7, y - 9);
        }
        let _ = writeln!(out, "<path class=\"{fill}\" d=\"M{} {}h8v6h-8z\"/>", x - 4, y - 6);
    } else {
        if port.is_agnostic {
            let _ = writeln!(out, "<path class=\"ring\" d=\"M{} {y}h18l-9 12z\"/>", x - 9);
        }
        let _ = writeln!(out, "<path class=\"{fill}\" d=\"M{} {y}h10l-5 7z\"/>", x - 5);
    }
}

/// Writes the corners of a line as a path with rounded corners.
fn write_path(corners: &[(i64, i64)], out: &mut String) {
    let mut points: Vec<(i64, i64)> = Vec::with_capacity(corners.len());
    for &point in corners {
        if points.last() == Some(&point) {
            continue;
        }
        // Corners between segments of the same direction are none.
        if let [.., before, last] = points.as_slice()
            && (before.0 == last.0 && last.0 == point.0 || before.1 == last.1 && last.1 == point.1)
        {
            points.pop();
        }
        points.push(point);
    }
    let Some((first, rest)) = points.split_first() else { return };
    let _ = write!(out, "M{} {}", first.0, first.1);
    let mut before = *first;
    for (index, &(x, y)) in rest.iter().enumerate() {
        let Some(&next) = rest.get(index + 1) else {
            let _ = write!(out, "L{x} {y}");
            break;
        };
        // The corner is not longer than half of the segments beside it.
        let length = |a: (i64, i64)| (a.0 - x).abs() + (a.1 - y).abs();
        let radius = CORNER.min(length(before) / 2).min(length(next) / 2);
        let toward = |to: (i64, i64)| (x + (to.0 - x).signum() * radius, y + (to.1 - y).signum() * radius);
        let (from, to) = (toward(before), toward(next));
        let _ = write!(out, "L{} {}Q{x} {y} {} {}", from.0, from.1, to.0, to.1);
        before = (x, y);
    }
}

/// The kinds of ports and boxes that are in a picture.
struct Legend {
    entries: Vec<(LegendMark, &'static str)>,
}

#[derive(Clone, Copy)]
enum LegendMark {
    Port(DrawnPort),
    Box(&'static str),
}

impl Legend {
    fn of(tree: &DrawingTree<'_>) -> Self {
        let ports = || tree.boxes.iter().flat_map(|drawn| drawn.inputs.iter().chain(&drawn.outputs));
        let mut entries = Vec::new();
        let mut add_port = |port: DrawnPort, text| entries.push((LegendMark::Port(port), text));
        if ports().any(|port| !port.pulls) {
            add_port(DrawnPort { pulls: false, is_agnostic: false }, "push");
        }
        if ports().any(|port| port.pulls) {
            add_port(DrawnPort { pulls: true, is_agnostic: false }, "pull");
        }
        if ports().any(|port| port.is_agnostic) {
            add_port(DrawnPort { pulls: false, is_agnostic: true }, "agnostic");
        }
        for (class, text) in [("source", "source"), ("sink", "sink"), ("store", "push to pull")] {
            if tree.boxes.iter().any(|drawn| box_class(drawn) == class) {
                entries.push((LegendMark::Box(class), text));
            }
        }
        Self { entries }
    }

    fn places(&self) -> impl Iterator<Item = (i64, i64)> {
        self.entries.iter().scan(0, |next, (mark, text)| {
            let lead = if matches!(mark, LegendMark::Port(_)) { 44 } else { 28 };
            let place = *next;
            *next += lead + width(text, SMALL_FONT_SIZE, false) + 16;
            Some((place, lead))
        })
    }

    fn width(&self) -> i64 {
        let last = self.entries.last().map_or(0, |(_, text)| width(text, SMALL_FONT_SIZE, false));
        self.places().last().map_or(0, |(place, lead)| place + lead + last)
    }

    fn write(&self, out: &mut String) {
        for ((mark, text), (x, lead)) in self.entries.iter().zip(self.places()) {
            match mark {
                LegendMark::Port(port) => {
                    write_port(*port, false, (x + 9, -9), out);
                    write_port(*port, true, (x + 29, 0), out);
                }
                LegendMark::Box(class) => {
                    let _ = writeln!(
                        out,
                        "<rect class=\"{class}\" x=\"{x}\" y=\"-11\" width=\"22\" height=\"12\" rx=\"3\"/>"
                    );
                }
            }
            let _ = writeln!(out, "<text class=\"small\" x=\"{}\" y=\"0\">{text}</text>", x + lead);
        }
    }
}
