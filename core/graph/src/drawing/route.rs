//! Lines as vertical and horizontal segments. Horizontal segments lie on tracks between layers.

use super::layers::{LayeredGraph, PieceEnd, VertexSide};
use std::collections::BTreeMap;

/// The distance of two tracks.
const TRACK_DISTANCE: i64 = 9;
/// The distance of a layer from the next track.
const TRACK_MARGIN: i64 = 16;
/// The distance of two layers without tracks between them.
const LAYER_DISTANCE: i64 = 34;
/// The height of a box over its neighbours from which it counts as high.
const HIGH: i64 = 60;
/// The number of horizontal segments between two layers up to which the best order of tracks is searched.
const SEARCH_MAX: usize = 300;
/// The cost of two lines on top of each other, in crossings.
const OVERLAP_COST: usize = 100;

/// The vertical extent of the graph, and its lines.
#[derive(Debug)]
pub(super) struct RoutedLines {
    /// The upper side of each vertex.
    pub tops: Vec<i64>,
    pub height: i64,
    /// The corners of each line.
    pub lines: Vec<Vec<(i64, i64)>>,
}

/// The horizontal segments between two layers that lead to the same input.
#[derive(Debug, Default)]
struct HorizontalSegment {
    /// The places at which lines come from above, and go below.
    tops: Vec<i64>,
    bottoms: Vec<i64>,
    left: i64,
    right: i64,
    track: usize,
}

/// The segments of all gaps between layers, by the vertex, the side and the place at which they end.
type Segments = Vec<BTreeMap<(usize, bool, i64), HorizontalSegment>>;

/// Routes all lines. `lead` is the height above the first layer.
pub(super) fn route(graph: &LayeredGraph, places: &[i64], lead: i64) -> RoutedLines {
    let mut segments: Segments = (0..=graph.layers.len()).map(|_| BTreeMap::new()).collect();
    let x = |end: &PieceEnd| places[end.vertex] + end.offset;
    for piece in graph.lines.iter().flatten() {
        let [a, b] = &piece.ends;
        if x(a) == x(b) && a.side != b.side {
            continue;
        }
        let segment = segments[piece.gap].entry(key(graph, &piece.ends, places)).or_insert_with(|| {
            HorizontalSegment { left: i64::MAX, right: i64::MIN, ..HorizontalSegment::default() }
        });
        for end in [a, b] {
            // The lower side of a vertex is above the gap.
            let side = if end.side == VertexSide::Bottom { &mut segment.tops } else { &mut segment.bottoms };
            side.push(x(end));
            segment.left = segment.left.min(x(end));
            segment.right = segment.right.max(x(end));
        }
    }
    let mut tops = vec![0; graph.vertices.len()];
    let mut track_y: Vec<i64> = Vec::with_capacity(segments.len());
    let mut y = lead;
    let mut bands = Vec::new();
    for (gap, segments) in segments.iter_mut().enumerate() {
        let tracks = assign_tracks(segments.values_mut().collect());
        track_y.push(y + TRACK_MARGIN);
        let is_outside = gap == 0 || gap == graph.layers.len();
        if tracks > 0 {
            let between = i64::try_from(tracks - 1).unwrap_or(0) * TRACK_DISTANCE;
            y += (2 * TRACK_MARGIN + between).max(if is_outside { 0 } else { LAYER_DISTANCE });
        } else if !is_outside {
            y += LAYER_DISTANCE;
        }
        let Some(layer) = graph.layers.get(gap) else { break };
        let height = layer.iter().map(|vertex| graph.vertices[*vertex].height).max().unwrap_or(0);
        bands.push((y, height));
        for vertex in layer {
            let of = &graph.vertices[*vertex];
            let room = height - of.height;
            // Beside a high box, a box is near to its neighbours.
            tops[*vertex] = y + match (room < HIGH, of.neighbours[0].is_empty()) {
                (true, _) => room / 2,
                (false, true) => room,
                (false, false) => 0,
            };
        }
        y += height;
    }
    let side_y = |end: &PieceEnd| {
        let vertex = &graph.vertices[end.vertex];
        let (top, height) =
            if vertex.is_bend { bands[vertex.layer] } else { (tops[end.vertex], vertex.height) };
        if end.side == VertexSide::Bottom { top + height } else { top }
    };
    let corners = |pieces: &Vec<super::layers::LinePiece>| {
        let mut line = Vec::new();
        for piece in pieces {
            let [a, b] = &piece.ends;
            line.push((x(a), side_y(a)));
            if let Some(segment) = segments[piece.gap].get(&key(graph, &piece.ends, places)) {
                let track = i64::try_from(segment.track).unwrap_or(0);
                let y = track_y[piece.gap] + track * TRACK_DISTANCE;
                line.extend([(x(a), y), (x(b), y)]);
            }
            line.push((x(b), side_y(b)));
        }
        line
    };
    RoutedLines { lines: graph.lines.iter().map(corners).collect(), tops, height: y }
}

/// Returns the key of a piece's segment: its end at an input, as lines to one input share their segment, or else its
/// lower end.
fn key(graph: &LayeredGraph, ends: &[PieceEnd; 2], places: &[i64]) -> (usize, bool, i64) {
    let [a, b] = ends;
    let end = if b.side == VertexSide::Top || a.side == VertexSide::Bottom { b } else { a };
    let is_input = end.side == VertexSide::Top && !graph.vertices[end.vertex].is_bend;
    (end.vertex, is_input, places[end.vertex] + end.offset)
}

/// Returns the crossings of two segments if the first one is above the second one.
fn crossings(upper: &HorizontalSegment, lower: &HorizontalSegment) -> usize {
    let inside = |places: &[i64], of: &HorizontalSegment| {
        places.iter().filter(|x| (of.left + 1..of.right).contains(x)).count()
    };
    let on_top = upper.bottoms.iter().filter(|x| lower.tops.contains(x)).count();
    inside(&upper.bottoms, lower) + inside(&lower.tops, upper) + OVERLAP_COST * on_top
}

fn overlap(a: &HorizontalSegment, b: &HorizontalSegment) -> bool {
    a.left <= b.right + TRACK_DISTANCE && b.left <= a.right + TRACK_DISTANCE
}

/// Gives each segment a track, such that few lines cross and segments of a track do not touch. Returns the number of
/// tracks.
fn assign_tracks(mut segments: Vec<&mut HorizontalSegment>) -> usize {
    segments.sort_by_key(|segment| (segment.left, segment.right));
    let count = segments.len();
    // The segments that are better below each one.
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut above = vec![0_usize; count];
    if count <= SEARCH_MAX {
        for a in 0..count {
            for b in a + 1..count {
                if !overlap(segments[a], segments[b]) {
                    continue;
                }
                let (one, other) = (crossings(segments[a], segments[b]), crossings(segments[b], segments[a]));
                if one == other {
                    continue;
                }
                let (upper, lower) = if one < other { (a, b) } else { (b, a) };
                below[upper].push(lower);
                above[lower] += 1;
            }
        }
    }
    // The intervals of each track.
    let mut tracks: Vec<Vec<(i64, i64)>> = Vec::new();
    let mut least = vec![0; count];
    let mut left: Vec<usize> = (0..count).collect();
    while !left.is_empty() {
        // Of segments that should all be below another one, the one with the fewest is next.
        let (position, next) =
            left.iter().copied().enumerate().min_by_key(|(_, it)| above[*it]).unwrap_or((0, 0));
        left.remove(position);
        let segment = &mut segments[next];
        let is_free = |track: &Vec<(i64, i64)>| {
            track.iter().all(|(from, to)| {
                segment.left > to + TRACK_DISTANCE || *from > segment.right + TRACK_DISTANCE
            })
        };
        let track = (least[next]..tracks.len()).find(|track| is_free(&tracks[*track]));
        let track = track.unwrap_or(tracks.len().max(least[next]));
        if track >= tracks.len() {
            tracks.resize(track + 1, Vec::new());
        }
        tracks[track].push((segment.left, segment.right));
        segment.track = track;
        for &lower in &below[next] {
            above[lower] = above[lower].saturating_sub(1);
            least[lower] = least[lower].max(track + 1);
        }
    }
    tracks.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(top: i64, bottom: i64) -> HorizontalSegment {
        let (left, right) = (top.min(bottom), top.max(bottom));
        HorizontalSegment { tops: vec![top], bottoms: vec![bottom], left, right, track: 0 }
    }

    #[test]
    fn parallel_lines_do_not_cross() {
        let (mut a, mut b) = (segment(0, 100), segment(50, 150));
        assert_eq!(assign_tracks(vec![&mut a, &mut b]), 2);
        assert_eq!((a.track, b.track), (1, 0));
        assert_eq!(crossings(&b, &a), 0);
        let (mut a, mut b) = (segment(100, 0), segment(150, 50));
        assign_tracks(vec![&mut a, &mut b]);
        assert_eq!((a.track, b.track), (0, 1));
    }

    #[test]
    fn a_line_that_ends_where_another_begins_goes_below_it() {
        let (mut a, mut b) = (segment(0, 100), segment(100, 200));
        assign_tracks(vec![&mut a, &mut b]);
        assert!(b.track < a.track);
    }

    #[test]
    fn distant_lines_share_a_track() {
        let (mut a, mut b) = (segment(0, 100), segment(200, 300));
        assert_eq!(assign_tracks(vec![&mut a, &mut b]), 1);
    }
}
