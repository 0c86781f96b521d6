//! Places of boxes: those inside of a compound element first, then the box around them.

use super::layers::{LayerEdge, LayerNode, LayerRank, LayeredGraph};
use super::svg::{Caption, FONT_SIZE, SMALL_FONT_SIZE};
use super::text::width;
use super::tree::{BoxContent, DrawingTree};
use super::{DrawingError, order, place, route};

/// The distance between ports, at least.
const PORT_DISTANCE: i64 = 20;
/// The space on both sides of a caption.
const CAPTION_MARGIN: i64 = 10;
/// The height of a box with one line of text, and of each further line.
const BOX_HEIGHT: i64 = 38;
const LINE_HEIGHT: i64 = 15;
const BOX_WIDTH_MIN: i64 = 56;
/// The space between a border and the boxes inside.
const BORDER_MARGIN: i64 = 18;
/// The height of a compound element's name.
pub(super) const HEADING_HEIGHT: i64 = 26;
/// The distance between parts without a connection.
const PART_DISTANCE: i64 = 44;
/// The width of a port of a border, with the space around it.
const BORDER_PORT_WIDTH: i64 = 14;

/// A box with its place in the box around it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedBox {
    pub x: i64,
    pub y: i64,
    pub width: i64,
    pub height: i64,
    /// The places of the ports, from the left side.
    pub inputs: Vec<i64>,
    pub outputs: Vec<i64>,
    /// The place of the name of a compound element, from the left side.
    pub heading: i64,
    /// The corners of the lines inside, in the order of the lines of the box.
    pub lines: Vec<Vec<(i64, i64)>>,
}

/// Places all boxes.
pub(super) fn lay_out(tree: &DrawingTree<'_>) -> Result<Vec<PlacedBox>, DrawingError> {
    let mut placed = vec![PlacedBox::default(); tree.boxes.len()];
    // A box is behind the box around it.
    for index in (0..tree.boxes.len()).rev() {
        match tree.boxes[index].content {
            BoxContent::Element(_) | BoxContent::Collapsed(..) => placed[index] = closed_box(tree, index),
            BoxContent::Picture | BoxContent::Compound(_) => open_box(tree, index, &mut placed)?,
        }
    }
    Ok(placed)
}

/// Returns a number that is no larger than the number of ports or lines of a picture.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 1_000_000)
}

/// Returns a box without boxes inside. The ports of a side are distributed evenly.
fn closed_box(tree: &DrawingTree<'_>, index: usize) -> PlacedBox {
    let drawn = &tree.boxes[index];
    let caption = Caption::new(tree, index);
    let texts = caption.small.iter().map(|text| width(text, SMALL_FONT_SIZE, false));
    let first = width(&caption.name, FONT_SIZE, true) + width(&caption.suffix, FONT_SIZE, false);
    let text = texts.max().unwrap_or(0).max(first) + 2 * CAPTION_MARGIN;
    let ports = signed(drawn.inputs.len().max(drawn.outputs.len())) * PORT_DISTANCE;
    let wide = text.max(ports).max(BOX_WIDTH_MIN);
    // An even width, so that a single port is in the middle.
    let wide = wide + wide % 2;
    let spread = |count: usize| {
        (0..signed(count)).map(|port| (2 * port + 1) * wide / (2 * signed(count))).collect::<Vec<i64>>()
    };
    PlacedBox {
        width: wide,
        height: BOX_HEIGHT + LINE_HEIGHT * signed(caption.small.len()),
        inputs: spread(drawn.inputs.len()),
        outputs: spread(drawn.outputs.len()),
        ..PlacedBox::default()
    }
}

/// A part of a box: nodes that are connected with each other.
#[derive(Default)]
struct Part {
    nodes: Vec<usize>,
    lines: Vec<usize>,
}

/// Places the boxes and lines inside of a box, and sets its size.
fn open_box(tree: &DrawingTree<'_>, index: usize, placed: &mut [PlacedBox]) -> Result<(), DrawingError> {
    let drawn = &tree.boxes[index];
    let children = drawn.children.len();
    // The nodes: the children, then the inputs of the border, then its outputs.
    let mut nodes: Vec<LayerNode> = Vec::with_capacity(children + drawn.inputs.len() + drawn.outputs.len());
    let mut node_of = vec![0; tree.boxes.len()];
    for (node, child) in drawn.children.iter().enumerate() {
        node_of[*child] = node;
        let PlacedBox { width, height, inputs, outputs, .. } = &placed[*child];
        let (inputs, outputs) = (inputs.clone(), outputs.clone());
        nodes.push(LayerNode { width: *width, height: *height, inputs, outputs, rank: LayerRank::Free });
    }
    let border = |rank| LayerNode {
        width: BORDER_PORT_WIDTH,
        height: 0,
        inputs: vec![BORDER_PORT_WIDTH / 2],
        outputs: vec![BORDER_PORT_WIDTH / 2],
        rank,
    };
    nodes.extend(drawn.inputs.iter().map(|_| border(LayerRank::First)));
    nodes.extend(drawn.outputs.iter().map(|_| border(LayerRank::Last)));
    let (first_input, first_output) = (children, children + drawn.inputs.len());
    let end = |(of, port): (usize, usize), first: usize| {
        if of == index { (first + port, 0) } else { (node_of[of], port) }
    };
    let edges: Vec<LayerEdge> = drawn
        .lines
        .iter()
        .map(|line| LayerEdge { from: end(line.from, first_input), to: end(line.to, first_output) })
        .collect();

    let has_border_ports = nodes.len() > children;
    let parts = if has_border_ports {
        vec![Part { nodes: (0..nodes.len()).collect(), lines: (0..edges.len()).collect() }]
    } else {
        split(nodes.len(), &edges)
    };
    let is_compound = index != 0;
    let lead = if is_compound && drawn.inputs.is_empty() { HEADING_HEIGHT } else { 0 };
    let mut lines = vec![Vec::new(); edges.len()];
    let mut corners = vec![(0, 0); nodes.len()];
    let mut sizes = Vec::with_capacity(parts.len());
    for part in &parts {
        sizes.push(place_part(part, &nodes, &edges, &mut corners, &mut lines)?);
    }
    let (shifts, mut inner_width, inner_height) = pack(&sizes);
    let margin = if is_compound { BORDER_MARGIN } else { 0 };
    for (part, (shift_x, shift_y)) in parts.iter().zip(shifts) {
        let (shift_x, shift_y) = (shift_x + margin, shift_y + lead);
        for node in &part.nodes {
            corners[*node].0 += shift_x;
            corners[*node].1 += shift_y;
        }
        for line in &part.lines {
            lines[*line].iter_mut().for_each(|(x, y)| (*x, *y) = (*x + shift_x, *y + shift_y));
        }
    }
    for (child, (x, y)) in drawn.children.iter().zip(&corners) {
        (placed[*child].x, placed[*child].y) = (*x, *y);
    }
    let ports = |range: std::ops::Range<usize>| -> Vec<i64> {
        corners[range].iter().map(|(x, _)| x + BORDER_PORT_WIDTH / 2).collect()
    };
    let (inputs, outputs) = (ports(first_input..first_output), ports(first_output..nodes.len()));
    let mut heading = 0;
    if is_compound {
        let caption = Caption::new(tree, index);
        let needed = width(&caption.name, FONT_SIZE, true) + width(&caption.suffix, FONT_SIZE, false);
        (heading, inner_width) = place_heading(&inputs, needed, inner_width);
    }
    let below = if is_compound && drawn.outputs.is_empty() { BORDER_MARGIN } else { 0 };
    let of = &mut placed[index];
    of.width = inner_width + 2 * margin;
    of.height = lead + inner_height + below;
    (of.inputs, of.outputs, of.heading, of.lines) = (inputs, outputs, heading, lines);
    Ok(())
}

/// Returns a place for the name of a compound element beside the lines that enter it, and the width that is then needed.
fn place_heading(inputs: &[i64], needed: i64, inner_width: i64) -> (i64, i64) {
    let mut sorted = inputs.to_vec();
    sorted.sort_unstable();
    let mut left = CAPTION_MARGIN;
    for input in sorted {
        if input - left >= needed + CAPTION_MARGIN {
            break;
        }
        left = input + CAPTION_MARGIN;
    }
    (left, inner_width.max(left + needed + CAPTION_MARGIN - 2 * BORDER_MARGIN))
}

/// Splits nodes into parts that are connected with each other, in the order of their first nodes.
fn split(nodes: usize, edges: &[LayerEdge]) -> Vec<Part> {
    let mut parents: Vec<usize> = (0..nodes).collect();
    fn root(parents: &mut [usize], mut node: usize) -> usize {
        while parents[node] != node {
            parents[node] = parents[parents[node]];
            node = parents[node];
        }
        node
    }
    for edge in edges {
        let (a, b) = (root(&mut parents, edge.from.0), root(&mut parents, edge.to.0));
        // The first node is the root, which bounds the depth together with the halving of paths.
        parents[a.max(b)] = a.min(b);
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut part_of = vec![usize::MAX; nodes];
    for node in 0..nodes {
        let root = root(&mut parents, node);
        if part_of[root] == usize::MAX {
            part_of[root] = parts.len();
            parts.push(Part::default());
        }
        part_of[node] = part_of[root];
        parts[part_of[node]].nodes.push(node);
    }
    for (line, edge) in edges.iter().enumerate() {
        parts[part_of[edge.from.0]].lines.push(line);
    }
    parts
}

/// Places the nodes and lines of a part. Returns its width and height.
fn place_part(
    part: &Part,
    nodes: &[LayerNode],
    edges: &[LayerEdge],
    corners: &mut [(i64, i64)],
    lines: &mut [Vec<(i64, i64)>],
) -> Result<(i64, i64), DrawingError> {
    let own: Vec<LayerNode> = part.nodes.iter().map(|node| nodes[*node].clone()).collect();
    // The nodes of a part are sorted.
    let local = |(node, port): (usize, usize)| (part.nodes.binary_search(&node).unwrap_or(0), port);
    let own_edges: Vec<LayerEdge> = part
        .lines
        .iter()
        .map(|line| LayerEdge { from: local(edges[*line].from), to: local(edges[*line].to) })
        .collect();
    let mut graph = LayeredGraph::new(&own, &own_edges)?;
    order::order(&mut graph);
    let places = place::place(&graph);
    let routed = route::route(&graph, &places, 0);
    for (node, at) in part.nodes.iter().enumerate() {
        corners[*at] = (places[node], routed.tops[node]);
    }
    for (line, at) in routed.lines.into_iter().zip(&part.lines) {
        lines[*at] = line;
    }
    let right = |vertex: usize| places[vertex] + graph.vertices[vertex].width;
    Ok(((0..places.len()).map(right).max().unwrap_or(0), routed.height))
}

/// Places parts in rows, about one and a half times as wide as high. Returns the place of each part, and the size of all.
fn pack(sizes: &[(i64, i64)]) -> (Vec<(i64, i64)>, i64, i64) {
    let area: i64 =
        sizes.iter().map(|(width, height)| (width + PART_DISTANCE) * (height + PART_DISTANCE)).sum();
    let widest = sizes.iter().map(|(width, _)| *width).max().unwrap_or(0);
    let row_width = widest.max((area + area / 2).max(0).isqrt());
    let (mut x, mut y, mut row_height, mut all_width) = (0, 0, 0, 0);
    let mut places = Vec::with_capacity(sizes.len());
    for (width, height) in sizes {
        if x > 0 && x + width > row_width {
            (x, y, row_height) = (0, y + row_height + PART_DISTANCE, 0);
        }
        places.push((x, y));
        all_width = all_width.max(x + width);
        x += width + PART_DISTANCE;
        row_height = row_height.max(*height);
    }
    (places, all_width, y + row_height)
}
