//! Layers: cycles are broken, and each box gets a layer below those from which its packets come.

use super::{BENDS_MAX, DrawingError, check_limit};
use std::collections::BTreeMap;

/// A box, or a port of the border around the boxes.
#[derive(Clone, Debug)]
pub(super) struct LayerNode {
    pub width: i64,
    pub height: i64,
    /// The places of the inputs, from the left side.
    pub inputs: Vec<i64>,
    /// The places of the outputs.
    pub outputs: Vec<i64>,
    pub rank: LayerRank,
}

/// The place of a node among the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerRank {
    /// The first layer: an input of the border.
    First,
    /// A layer that follows from the connections.
    Free,
    /// The last layer: an output of the border.
    Last,
}

/// A line from an output of a node to an input of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerEdge {
    pub from: (usize, usize),
    pub to: (usize, usize),
}

/// A node in its layer, or a place at which a line passes through a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Vertex {
    pub layer: usize,
    pub width: i64,
    pub height: i64,
    pub is_bend: bool,
    /// The neighbours in the layer above, and in the layer below.
    pub neighbours: [Vec<Neighbour>; 2],
    /// The neighbours in the same layer, to which a line of a cycle leads.
    pub beside: Vec<usize>,
}

/// A neighbour of a vertex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neighbour {
    pub vertex: usize,
    /// The place of the line at this vertex, from its left side.
    pub own_offset: i64,
    /// The place of the line at the neighbour.
    pub offset: i64,
    /// The importance of a straight line.
    pub weight: i64,
}

/// The upper or the lower side of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VertexSide {
    Top,
    Bottom,
}

/// An end of a piece of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceEnd {
    pub vertex: usize,
    pub offset: i64,
    pub side: VertexSide,
}

/// A piece of a line: the part between two layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePiece {
    /// The layer below the piece; the number of layers for a piece below the last.
    pub gap: usize,
    pub ends: [PieceEnd; 2],
}

/// Nodes in layers, with their lines in pieces.
#[derive(Debug, Default)]
pub(super) struct LayeredGraph {
    /// The nodes, then the bends.
    pub vertices: Vec<Vertex>,
    /// The vertices of each layer, from left to right.
    pub layers: Vec<Vec<usize>>,
    /// The pieces of each line, from its output to its input.
    pub lines: Vec<Vec<LinePiece>>,
}

/// An input, and true for the lines that come from below.
type BendKey = ((usize, i64), bool);

/// The bends of lines to the same input: such lines join, and share the rest of their way.
type SharedBends = BTreeMap<(BendKey, usize), usize>;

impl LayeredGraph {
    pub fn new(nodes: &[LayerNode], edges: &[LayerEdge]) -> Result<Self, DrawingError> {
        let is_back = back_edges(nodes, edges);
        let layer_of = assign(nodes, edges, &is_back);
        let mut graph = Self::default();
        let count = layer_of.iter().max().map_or(0, |last| last + 1);
        graph.layers.resize(count, Vec::new());
        for (node, layer) in nodes.iter().zip(&layer_of) {
            let (width, height) = (node.width, node.height);
            graph.add_vertex(Vertex { layer: *layer, width, height, ..Vertex::default() });
        }
        let mut bends = SharedBends::new();
        for (edge, is_back) in edges.iter().zip(&is_back) {
            let from = (edge.from.0, nodes[edge.from.0].outputs[edge.from.1]);
            let to = (edge.to.0, nodes[edge.to.0].inputs[edge.to.1]);
            let pieces = match is_back {
                true => graph.add_upward(from, to, &mut bends),
                false => graph.add_downward(from, to, &mut bends),
            };
            graph.lines.push(pieces);
            check_limit("bends of lines", graph.vertices.len() - nodes.len(), BENDS_MAX)?;
        }
        graph.weigh();
        Ok(graph)
    }

    fn add_vertex(&mut self, vertex: Vertex) -> usize {
        let index = self.vertices.len();
        self.layers[vertex.layer].push(index);
        self.vertices.push(vertex);
        index
    }

    /// Returns the bend in a layer of the lines to an input, and true if there was none before.
    fn bend(&mut self, layer: usize, key: BendKey, bends: &mut SharedBends) -> ((usize, i64), bool) {
        let count = bends.len();
        let vertex = *bends
            .entry((key, layer))
            .or_insert_with(|| self.add_vertex(Vertex { layer, is_bend: true, ..Vertex::default() }));
        ((vertex, 0), bends.len() > count)
    }

    /// Makes two vertices neighbours: the lower side of one, and the upper side of one in the next layer.
    fn link(&mut self, upper: (usize, i64), lower: (usize, i64)) {
        let neighbour =
            |(vertex, offset): (usize, i64), own_offset| Neighbour { vertex, own_offset, offset, weight: 1 };
        self.vertices[upper.0].neighbours[1].push(neighbour(lower, upper.1));
        self.vertices[lower.0].neighbours[0].push(neighbour(upper, lower.1));
    }

    fn add_downward(
        &mut self,
        from: (usize, i64),
        to: (usize, i64),
        bends: &mut SharedBends,
    ) -> Vec<LinePiece> {
        let (first, last) = (self.vertices[from.0].layer, self.vertices[to.0].layer);
        let (mut pieces, mut above, mut is_new) = (Vec::new(), from, true);
        for layer in first + 1..=last {
            let (below, is_next_new) =
                if layer == last { (to, true) } else { self.bend(layer, (to, false), bends) };
            // From the first shared bend on, the line is there.
            if is_new {
                self.link(above, below);
            }
            pieces.push(LinePiece {
                gap: layer,
                ends: [end(above, VertexSide::Bottom), end(below, VertexSide::Top)],
            });
            (above, is_new) = (below, is_new && is_next_new);
        }
        pieces
    }

    /// Adds a line of a cycle: it turns below its output, goes up beside the boxes, and turns above its input.
    fn add_upward(
        &mut self,
        from: (usize, i64),
        to: (usize, i64),
        bends: &mut SharedBends,
    ) -> Vec<LinePiece> {
        let (last, first) = (self.vertices[from.0].layer, self.vertices[to.0].layer);
        let (mut below, mut is_new) = self.bend(last, (to, true), bends);
        self.set_beside(from.0, below.0);
        let turn = [end(from, VertexSide::Bottom), end(below, VertexSide::Bottom)];
        let mut pieces = vec![LinePiece { gap: last + 1, ends: turn }];
        for layer in (first..last).rev() {
            let (above, is_next_new) = self.bend(layer, (to, true), bends);
            if is_new {
                self.link(above, below);
            }
            let ends = [end(below, VertexSide::Top), end(above, VertexSide::Bottom)];
            pieces.push(LinePiece { gap: layer + 1, ends });
            (below, is_new) = (above, is_new && is_next_new);
        }
        self.set_beside(to.0, below.0);
        pieces.push(LinePiece { gap: first, ends: [end(below, VertexSide::Top), end(to, VertexSide::Top)] });
        pieces
    }

    fn set_beside(&mut self, node: usize, bend: usize) {
        self.vertices[node].beside.push(bend);
        self.vertices[bend].beside.push(node);
    }

    /// Gives straightness the more weight the longer the line is, and to boxes in a row.
    fn weigh(&mut self) {
        for vertex in 0..self.vertices.len() {
            for side in 0..2 {
                for index in 0..self.vertices[vertex].neighbours[side].len() {
                    let other = self.vertices[vertex].neighbours[side][index].vertex;
                    let bends = [vertex, other].iter().filter(|it| self.vertices[**it].is_bend).count();
                    let is_row = self.vertices[vertex].neighbours[side].len() == 1
                        && self.vertices[other].neighbours[1 - side].len() == 1;
                    let weight = [2, 4, 16][bends] * if is_row && bends == 0 { 3 } else { 1 };
                    self.vertices[vertex].neighbours[side][index].weight = weight;
                }
            }
        }
    }
}

fn end((vertex, offset): (usize, i64), side: VertexSide) -> PieceEnd {
    PieceEnd { vertex, offset, side }
}

/// Finds the edges that close cycles, by a depth-first search that begins at nodes without inputs.
fn back_edges(nodes: &[LayerNode], edges: &[LayerEdge]) -> Vec<bool> {
    let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut has_input = vec![false; nodes.len()];
    for (index, edge) in edges.iter().enumerate() {
        outgoing[edge.from.0].push(index);
        has_input[edge.to.0] |= edge.from.0 != edge.to.0;
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        Open,
        Done,
    }
    let mut visits = vec![Visit::Not; nodes.len()];
    let mut is_back = vec![false; edges.len()];
    let (sources, others): (Vec<usize>, Vec<usize>) = (0..nodes.len()).partition(|node| !has_input[*node]);
    for start in sources.into_iter().chain(others) {
        if visits[start] != Visit::Not {
            continue;
        }
        visits[start] = Visit::Open;
        let mut open = vec![(start, 0)];
        while let Some((node, next)) = open.last_mut() {
            let Some(edge) = outgoing[*node].get(*next) else {
                visits[*node] = Visit::Done;
                open.pop();
                continue;
            };
            *next += 1;
            let target = edges[*edge].to.0;
            match visits[target] {
                Visit::Not => {
                    visits[target] = Visit::Open;
                    open.push((target, 0));
                }
                Visit::Open => is_back[*edge] = true,
                Visit::Done => {}
            }
        }
    }
    is_back
}

/// Gives each node the first layer below all nodes from which it gets packets; then moves nodes with more outputs than
/// inputs down, as far as they can go.
fn assign(nodes: &[LayerNode], edges: &[LayerEdge], is_back: &[bool]) -> Vec<usize> {
    let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0; nodes.len()];
    for (edge, _) in edges.iter().zip(is_back).filter(|(_, is_back)| !**is_back) {
        outgoing[edge.from.0].push(edge.to.0);
        missing[edge.to.0] += 1;
    }
    let incoming = missing.clone();
    let first = usize::from(nodes.iter().any(|node| node.rank == LayerRank::First));
    let mut layers: Vec<usize> =
        nodes.iter().map(|node| if node.rank == LayerRank::First { 0 } else { first }).collect();
    let mut sequence: Vec<usize> = (0..nodes.len()).filter(|node| missing[*node] == 0).collect();
    let mut done = 0;
    while let Some(&node) = sequence.get(done) {
        done += 1;
        for &target in &outgoing[node] {
            layers[target] = layers[target].max(layers[node] + 1);
            missing[target] -= 1;
            if missing[target] == 0 {
                sequence.push(target);
            }
        }
    }
    let is_free = |node: usize| nodes[node].rank == LayerRank::Free;
    let last = (0..nodes.len()).filter(|node| is_free(*node)).map(|node| layers[node] + 1).max();
    let last = last.unwrap_or(first).max(first);
    for (layer, node) in layers.iter_mut().zip(nodes) {
        if node.rank == LayerRank::Last {
            *layer = last;
        }
    }
    for &node in sequence.iter().rev() {
        if is_free(node) && outgoing[node].len() > incoming[node] {
            let below = outgoing[node].iter().map(|target| layers[*target]).min().unwrap_or(1);
            layers[node] = layers[node].max(below.saturating_sub(1));
        }
    }
    layers
}
