//! Horizontal places: each vertex as near as possible to its neighbours above and below, without overlaps.

use super::layers::{LayeredGraph, Neighbour};

/// The distance of two boxes, of a box and a line, and of two lines.
const BOX_DISTANCE: i64 = 26;
const LINE_DISTANCE: i64 = 14;
/// Sweeps in both directions.
const SWEEPS: usize = 14;
/// The number of vertices of a layer from which means are used in place of medians, which take longer.
const LARGE: usize = 400;

/// Returns the left side of each vertex. The leftmost is at 0.
pub(super) fn place(graph: &LayeredGraph) -> Vec<i64> {
    let mut places = vec![0; graph.vertices.len()];
    for layer in &graph.layers {
        let mut next = 0;
        for (index, &vertex) in layer.iter().enumerate() {
            places[vertex] = next;
            let after = layer.get(index + 1).map_or(0, |after| distance(graph, vertex, *after));
            next += graph.vertices[vertex].width + after;
        }
    }
    for sweep in 0..SWEEPS {
        let sides: &[usize] = match (sweep + 4 < SWEEPS, sweep % 2) {
            (true, 0) => &[0],
            (true, _) => &[1],
            (false, _) => &[0, 1],
        };
        let count = graph.layers.len();
        for step in 0..count {
            let layer = if sweep % 2 == 0 { step } else { count - 1 - step };
            align(graph, &graph.layers[layer], sides, &mut places);
        }
    }
    let left = places.iter().min().copied().unwrap_or(0);
    places.iter_mut().for_each(|place| *place -= left);
    places
}

fn distance(graph: &LayeredGraph, left: usize, right: usize) -> i64 {
    let is_line = |vertex: usize| graph.vertices[vertex].is_bend;
    if is_line(left) || is_line(right) { LINE_DISTANCE } else { BOX_DISTANCE }
}

/// Neighbouring vertices of a layer that touch, with the places that they would like best.
struct TouchingVertices {
    /// The number of vertices.
    count: usize,
    /// Wanted places, with weights.
    wanted: Vec<(i64, i64)>,
    place: i64,
}

/// Moves the vertices of a layer to the best places that keep their order and their distances. This is an isotonic
/// regression: vertices whose wanted places are in the wrong order touch, and share one place.
fn align(graph: &LayeredGraph, layer: &[usize], sides: &[usize], places: &mut [i64]) {
    let is_large = layer.len() > LARGE;
    let mut blocks: Vec<TouchingVertices> = Vec::with_capacity(layer.len());
    // The sum of the widths and distances to the left of each vertex.
    let mut shifts = Vec::with_capacity(layer.len());
    let mut shift = 0;
    for (index, &vertex) in layer.iter().enumerate() {
        if index > 0 {
            shift += graph.vertices[layer[index - 1]].width + distance(graph, layer[index - 1], vertex);
        }
        shifts.push(shift);
        let of = &graph.vertices[vertex];
        let wish = |it: &Neighbour| (places[it.vertex] + it.offset - it.own_offset - shift, it.weight);
        let mut wanted: Vec<(i64, i64)> =
            sides.iter().flat_map(|side| &of.neighbours[*side]).map(wish).collect();
        if wanted.is_empty() {
            let beside = of.beside.first().filter(|_| of.is_bend);
            let place = beside.map_or(places[vertex], |it| places[*it] + graph.vertices[*it].width);
            wanted.push((place - shift, 1));
        }
        let place = best(&mut wanted, is_large, !of.is_bend);
        let mut block = TouchingVertices { count: 1, place, wanted };
        while let Some(before) = blocks.pop_if(|before| before.place > block.place) {
            block.count += before.count;
            block.wanted.extend(before.wanted);
            if is_large {
                block.wanted = vec![mean(&block.wanted)];
            }
            block.place = best(&mut block.wanted, is_large, false);
        }
        blocks.push(block);
    }
    let mut at = 0;
    for block in blocks {
        for _ in 0..block.count {
            places[layer[at]] = block.place + shifts[at];
            at += 1;
        }
    }
}

/// Returns the weighted mean, with the sum of the weights.
fn mean(wanted: &[(i64, i64)]) -> (i64, i64) {
    let weight: i64 = wanted.iter().map(|(_, weight)| weight).sum();
    let sum: i64 = wanted.iter().map(|(place, weight)| place * weight).sum();
    (sum.div_euclid(weight.max(1)), weight)
}

/// Returns the best of several wanted places: the weighted median, which lets most lines be straight. If each place
/// between two others is equally good, it is the middle, or else the left one.
fn best(wanted: &mut [(i64, i64)], is_large: bool, takes_middle: bool) -> i64 {
    if is_large {
        return mean(wanted).0;
    }
    wanted.sort_unstable();
    let weight: i64 = wanted.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0;
    for (index, (place, own)) in wanted.iter().enumerate() {
        sum += own;
        if takes_middle && 2 * sum == weight {
            let next = wanted.get(index + 1).map_or(*place, |(next, _)| *next);
            return (place + next).div_euclid(2);
        }
        if 2 * sum >= weight {
            return *place;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_weighted() {
        assert_eq!(best(&mut [(0, 1), (10, 3), (50, 1)], false, true), 10);
        assert_eq!(best(&mut [(0, 1), (10, 1)], false, true), 5);
        assert_eq!(best(&mut [(0, 1), (10, 1)], false, false), 0);
        assert_eq!(best(&mut [(0, 4), (10, 1), (50, 1)], false, true), 0);
    }
}
