//! Pictures in the language of Graphviz.

use super::svg::{Caption, full_name, tooltip};
use super::tree::{BoxContent, DrawingTree};
use std::fmt::Write as _;

/// Writes the boxes and the connections. Compound elements are clusters.
pub(super) fn write(tree: &DrawingTree<'_>) -> String {
    let mut out = String::from("digraph graph_of_elements {\n  node [shape=box, fontname=\"sans-serif\"];\n");
    write_inside(tree, 0, 1, &mut out);
    for (index, drawn) in tree.boxes.iter().enumerate() {
        // Lines begin and end at closed boxes; they are followed through borders.
        for line in drawn.lines.iter().filter(|line| line.from.0 != index && !is_open(tree, line.from.0)) {
            let style = if line.pulls { "dashed" } else { "solid" };
            for (to, port) in follow(tree, index, line.to) {
                let (from, output) = line.from;
                let _ = writeln!(
                    out,
                    "  b{from} -> b{to} [style={style}, taillabel=\"{output}\", headlabel=\"{port}\"];"
                );
            }
        }
    }
    out.push_str("}\n");
    out
}

fn is_open(tree: &DrawingTree<'_>, index: usize) -> bool {
    matches!(tree.boxes[index].content, BoxContent::Compound(_) | BoxContent::Picture)
}

/// Follows a line through borders to the inputs of closed boxes.
fn follow(tree: &DrawingTree<'_>, around: usize, to: (usize, usize)) -> Vec<(usize, usize)> {
    let mut ends = Vec::new();
    let mut open = vec![(around, to)];
    while let Some((around, (of, port))) = open.pop() {
        if of != around && !is_open(tree, of) {
            ends.push((of, port));
            continue;
        }
        // The border of the box around leads out, the border of another box leads inside.
        let next = if of == around { tree.boxes[of].parent } else { of };
        let lines = tree.boxes[next].lines.iter().filter(|line| line.from == (of, port));
        open.extend(lines.map(|line| (next, line.to)));
    }
    ends
}

fn write_inside(tree: &DrawingTree<'_>, index: usize, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for &child in &tree.boxes[index].children {
        if is_open(tree, child) {
            let name = quoted(&full_name(tree, child));
            let _ = writeln!(out, "{indent}subgraph cluster_{child} {{\n{indent}  label={name};");
            write_inside(tree, child, depth + 1, out);
            let _ = writeln!(out, "{indent}}}");
        } else {
            let caption = Caption::new(tree, child);
            let mut label = format!("{}{}", caption.name, caption.suffix);
            for line in caption.small {
                let _ = write!(label, "\n{line}");
            }
            let tooltip = quoted(&tooltip(tree, child));
            let _ = writeln!(out, "{indent}b{child} [label={}, tooltip={tooltip}];", quoted(&label));
        }
    }
}

/// Returns a text in double quotes. A line feed becomes the escape for one.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
