//! The order of each layer: by the mean of the neighbours' places, such that few lines cross.

use super::layers::LayeredGraph;

/// Rounds of sweeps in both directions, for small graphs and for large ones.
const ROUNDS: usize = 16;
const ROUNDS_OF_LARGE: usize = 4;
/// The number of vertices of a large graph.
const LARGE: usize = 4_000;
/// The steps of a place in the order, for ports of the same vertex.
const STEPS: i64 = 1 << 12;

/// Orders the layers.
pub(super) fn order(graph: &mut LayeredGraph) {
    let mut places = vec![0; graph.vertices.len()];
    begin(graph, &mut places);
    let rounds = if graph.vertices.len() > LARGE { ROUNDS_OF_LARGE } else { ROUNDS };
    let mut best = graph.layers.clone();
    let mut fewest = crossings(graph, &places);
    for round in 0..rounds {
        let downwards = round % 2 == 0;
        let count = graph.layers.len();
        for step in 0..count {
            let layer = if downwards { step } else { count - 1 - step };
            sort(graph, layer, usize::from(!downwards), &mut places);
        }
        let now = crossings(graph, &places);
        if now < fewest {
            fewest = now;
            best.clone_from(&graph.layers);
        }
        if fewest == 0 {
            break;
        }
    }
    graph.layers = best;
}

fn set_places(layer: &[usize], places: &mut [i64]) {
    for (place, vertex) in layer.iter().enumerate() {
        places[*vertex] = i64::try_from(place).unwrap_or(i64::MAX / STEPS);
    }
}

/// Orders all layers as a depth-first search comes to the vertices.
fn begin(graph: &mut LayeredGraph, places: &mut [i64]) {
    let mut is_seen = vec![false; graph.vertices.len()];
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); graph.layers.len()];
    for start in graph.layers.iter().flatten() {
        let mut open = vec![*start];
        while let Some(vertex) = open.pop() {
            if std::mem::replace(&mut is_seen[vertex], true) {
                continue;
            }
            let of = &graph.vertices[vertex];
            layers[of.layer].push(vertex);
            let mut below: Vec<_> = of.neighbours[1].iter().map(|it| (it.own_offset, it.vertex)).collect();
            below.sort_by_key(|(offset, _)| *offset);
            open.extend(of.beside.iter().rev().copied());
            open.extend(of.neighbours[0].iter().map(|it| it.vertex).filter(|it| graph.vertices[*it].is_bend));
            open.extend(below.into_iter().rev().map(|(_, vertex)| vertex));
        }
    }
    layers.iter().for_each(|layer| set_places(layer, places));
    graph.layers = layers;
}

/// Returns the place of a line at a vertex, in steps.
fn place(graph: &LayeredGraph, places: &[i64], vertex: usize, offset: i64) -> i64 {
    places[vertex] * STEPS + offset * (STEPS - 1) / graph.vertices[vertex].width.max(1)
}

/// Sorts a layer by the places of the neighbours on one side.
fn sort(graph: &mut LayeredGraph, layer: usize, side: usize, places: &mut [i64]) {
    let mean = |vertex: usize| {
        let of = &graph.vertices[vertex];
        let neighbours = &of.neighbours[side];
        let sum: i64 = neighbours.iter().map(|it| place(graph, places, it.vertex, it.offset)).sum();
        match i64::try_from(neighbours.len()) {
            Ok(count) if count > 0 => sum / count,
            // A line that turns in this layer goes beside its box.
            _ => match of.beside.first() {
                Some(beside) if of.is_bend => place(graph, places, *beside, graph.vertices[*beside].width),
                _ => places[vertex] * STEPS,
            },
        }
    };
    let mut keyed: Vec<(i64, usize)> =
        graph.layers[layer].iter().map(|vertex| (mean(*vertex), *vertex)).collect();
    // The means of vertices with neighbours are places in another layer, which can be longer; the sort is stable.
    keyed.sort_by_key(|(mean, _)| *mean);
    graph.layers[layer] = keyed.into_iter().map(|(_, vertex)| vertex).collect();
    set_places(&graph.layers[layer], places);
}

/// Counts the crossings between neighbouring layers: the inversions in the order of the lower ends.
fn crossings(graph: &LayeredGraph, places: &[i64]) -> u64 {
    let mut all = 0;
    for layer in &graph.layers {
        let mut lines: Vec<(i64, i64)> = Vec::new();
        for &vertex in layer {
            for it in &graph.vertices[vertex].neighbours[1] {
                let upper = place(graph, places, vertex, it.own_offset);
                lines.push((upper, place(graph, places, it.vertex, it.offset)));
            }
        }
        lines.sort_unstable();
        let mut lower: Vec<i64> = lines.into_iter().map(|(_, lower)| lower).collect();
        all += inversions(&mut lower);
    }
    all
}

/// Counts pairs in the wrong order, and sorts: a merge sort.
fn inversions(values: &mut [i64]) -> u64 {
    let middle = values.len() / 2;
    if middle == 0 {
        return 0;
    }
    let (left, right) = values.split_at_mut(middle);
    let mut count = inversions(left) + inversions(right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut a, mut b) = (0, 0);
    while let (Some(one), Some(other)) = (left.get(a), right.get(b)) {
        if one <= other {
            merged.push(*one);
            a += 1;
        } else {
            merged.push(*other);
            b += 1;
            count += (left.len() - a) as u64;
        }
    }
    merged.extend_from_slice(&left[a..]);
    merged.extend_from_slice(&right[b..]);
    values.copy_from_slice(&merged);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inversions_are_counted_as_pair_by_pair() {
        let values = [5, 1, 4, 4, 2, 9, 0, 3];
        let pairs = (0..values.len()).flat_map(|a| (a + 1..values.len()).map(move |b| (a, b)));
        let slow = pairs.filter(|(a, b)| values[*a] > values[*b]).count() as u64;
        let mut sorted = values;
        assert_eq!(inversions(&mut sorted), slow);
        assert_eq!(sorted, [0, 1, 2, 3, 4, 4, 5, 9]);
    }
}
