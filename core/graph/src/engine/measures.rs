//! The numbers of a graph: the counters and present values of all its elements, in one reading.
//!
//! The handler [`MEASURES`] has a line for each: the element, its class, `counter` or `gauge`, the handler, and the value. So
//! programs that show rates call one handler. The numbers of the elements on one thread are those of one moment.

use super::context::ElementContext;
use super::element::MeasureKind;
use std::fmt::Write as _;

/// The handler of a graph with the numbers of its elements.
pub const MEASURES: &str = "measures";

/// A number of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementMeasure {
    /// The name of the element.
    pub element: String,
    /// Its class.
    pub class: String,
    /// The kind of number.
    pub kind: MeasureKind,
    /// The handler.
    pub handler: String,
    /// The value.
    pub value: u64,
}

/// The words for the kinds, in the text.
const KINDS: [(MeasureKind, &str); 2] = [(MeasureKind::Counter, "counter"), (MeasureKind::Gauge, "gauge")];

/// Reads the text of the handler [`MEASURES`]. Lines of another form are left out.
pub fn read_measures(text: &str) -> Vec<ElementMeasure> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (element, class) = (words.next()?.to_owned(), words.next()?.to_owned());
        let word = words.next()?;
        let (kind, _) = *KINDS.iter().find(|(_, name)| *name == word)?;
        let handler = words.next()?.to_owned();
        let value = words.next()?.parse().ok()?;
        words.next().is_none().then_some(ElementMeasure { element, class, kind, handler, value })
    };
    text.lines().filter_map(line).collect()
}

/// Returns the text of the handler of a graph.
pub(super) fn of_graph(cx: &mut ElementContext<'_>) -> String {
    let mut text = String::new();
    for index in 0..cx.graph.declared.len() {
        // An element on another thread is asked there.
        let call = format!("{}.{MEASURES}", cx.graph.declared[index].name);
        text.push_str(&super::handler::read_named(cx, &call, "").unwrap_or_default());
    }
    text
}

/// Returns the lines of an element. A value that is no number at present is left out.
pub(super) fn of_element(cx: &mut ElementContext<'_>, index: usize) -> String {
    let mut text = String::new();
    let handlers = cx.elements[index].as_mut().map_or(&[][..], |it| it.element().handlers());
    let declared = &cx.graph.declared[index];
    let (name, class) = (declared.name.clone(), declared.class.clone());
    for definition in handlers {
        let Some(kind) = definition.measure else { continue };
        let value = cx.with_element(index, |it, cx| it.element().read_handler(definition.name, "", cx));
        let value = value.flatten().and_then(Result::ok);
        let Some(value) = value.and_then(|value| value.trim().parse::<u64>().ok()) else { continue };
        let kind = KINDS.iter().find(|(it, _)| *it == kind).map_or("", |(_, word)| word);
        _ = writeln!(text, "{name} {class} {kind} {} {value}", definition.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_another_form_are_left_out() {
        let text = "c Counter counter count 12\nq Queue gauge length 3\n\nx\na B level c 1\na B gauge c -1\na B gauge c 1 2\n";
        let measures = read_measures(text);
        let found: Vec<(&str, MeasureKind, u64)> =
            measures.iter().map(|it| (it.element.as_str(), it.kind, it.value)).collect();
        assert_eq!(found, [("c", MeasureKind::Counter, 12), ("q", MeasureKind::Gauge, 3)]);
    }
}
