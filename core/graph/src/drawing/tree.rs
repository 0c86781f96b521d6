//! The boxes of a picture, and the lines between them.

use super::{BOXES_MAX, DrawingError, LINES_MAX, check_limit};
use crate::engine::{ElementClass, ElementPorts, Processing, processing};
use crate::language::FlatConfiguration;
use std::collections::{BTreeMap, BTreeSet};

/// A port of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrawnPort {
    /// Packets are pulled through it.
    pub pulls: bool,
    /// Its class leaves open whether packets are pushed or pulled.
    pub is_agnostic: bool,
}

/// The content of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoxContent {
    /// The whole picture.
    Picture,
    /// An element.
    Element(usize),
    /// A compound element with its components.
    Compound(usize),
    /// A compound element without its components, which have this number.
    Collapsed(usize, usize),
}

/// A box.
#[derive(Debug)]
pub(super) struct DrawnBox {
    pub parent: usize,
    pub content: BoxContent,
    pub children: Vec<usize>,
    pub inputs: Vec<DrawnPort>,
    pub outputs: Vec<DrawnPort>,
    /// The lines between the children, and between them and the border.
    pub lines: Vec<DrawnLine>,
}

/// A line between two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DrawnLine {
    /// A box and its output; or the box around the line, and its input.
    pub from: (usize, usize),
    /// A box and its input; or the box around the line, and its output.
    pub to: (usize, usize),
    /// Packets are pulled.
    pub pulls: bool,
    /// The index of the first connection that takes this line.
    pub connection: usize,
}

/// A side of a box, and the port of an element inside that is connected to it from outside.
type BorderKey = (usize, bool, usize, u32);

/// The boxes of a picture. The first one is the whole picture.
pub(super) struct DrawingTree<'c> {
    /// Further lines in the boxes of elements, by their names.
    pub notes: &'c BTreeMap<String, Vec<String>>,
    pub configuration: &'c FlatConfiguration,
    pub boxes: Vec<DrawnBox>,
    /// The number of compound elements that are drawn as single boxes because of the limits.
    pub collapsed: usize,
    /// The box of each element, or the compound element around it that is drawn as a single box.
    box_of: Vec<usize>,
    borders: BTreeMap<BorderKey, usize>,
}

impl<'c> DrawingTree<'c> {
    /// Makes the boxes and the lines. Compound elements deeper than `depth` are single boxes.
    pub fn new(
        configuration: &'c FlatConfiguration,
        classes: &[&ElementClass],
        ports: &[ElementPorts],
        depth: Option<usize>,
        notes: &'c BTreeMap<String, Vec<String>>,
    ) -> Result<Self, DrawingError> {
        let wanted = depth.unwrap_or(usize::MAX);
        let fitting = fitting_depth(configuration, wanted)?;
        let mut tree = Self {
            configuration,
            notes,
            boxes: Vec::new(),
            collapsed: 0,
            box_of: vec![0; configuration.elements.len()],
            borders: BTreeMap::new(),
        };
        tree.add_boxes(fitting, fitting < wanted);
        tree.add_ports(classes, ports)?;
        tree.add_lines(ports)?;
        Ok(tree)
    }

    fn add_box(&mut self, parent: usize, content: BoxContent) -> usize {
        let index = self.boxes.len();
        let (inputs, outputs) = (Vec::new(), Vec::new());
        self.boxes.push(DrawnBox {
            parent,
            content,
            children: Vec::new(),
            inputs,
            outputs,
            lines: Vec::new(),
        });
        if index != parent {
            self.boxes[parent].children.push(index);
        }
        index
    }

    fn add_boxes(&mut self, depth: usize, is_limited: bool) {
        let FlatConfiguration { elements, compounds, .. } = self.configuration;
        self.add_box(0, BoxContent::Picture);
        // The boxes of the compound elements, with their depth.
        let mut placed: Vec<(usize, usize)> = Vec::with_capacity(compounds.len());
        let mut has_parent = vec![false; elements.len()];
        let counts = components(self.configuration);
        for (index, compound) in compounds.iter().enumerate() {
            let (around, level) =
                compound.parent.map_or((0, 0), |parent| (placed[parent].0, placed[parent].1 + 1));
            let of_compound = if level > depth {
                around
            } else if counts[index] == 0 {
                // Connections go through it, and nothing is inside.
                around
            } else if level == depth {
                self.collapsed += usize::from(is_limited);
                self.add_box(around, BoxContent::Collapsed(index, counts[index]))
            } else {
                self.add_box(around, BoxContent::Compound(index))
            };
            placed.push((of_compound, level));
            for element in compound.elements.clone() {
                has_parent[element] = true;
                self.box_of[element] = match level < depth {
                    true => self.add_box(of_compound, BoxContent::Element(element)),
                    false => of_compound,
                };
            }
        }
        for element in (0..elements.len()).filter(|element| !has_parent[*element]) {
            self.box_of[element] = self.add_box(0, BoxContent::Element(element));
        }
        // Boxes are laid out in the order of the text: elements first, then the compound elements among them.
        for drawn in &mut self.boxes {
            drawn.children.sort_unstable();
        }
    }

    fn add_ports(&mut self, classes: &[&ElementClass], ports: &[ElementPorts]) -> Result<(), DrawingError> {
        let mut count = 0;
        for index in 0..self.boxes.len() {
            let BoxContent::Element(element) = self.boxes[index].content else { continue };
            let (code, ports) = (classes[element].processing, &ports[element]);
            let is_agnostic = |is_output, port| processing(code, is_output, port) == Ok(Processing::Agnostic);
            let inputs = ports.inputs_pull.iter().enumerate();
            self.boxes[index].inputs = inputs
                .map(|(port, pulls)| DrawnPort { pulls: *pulls, is_agnostic: is_agnostic(false, port) })
                .collect();
            let outputs = ports.outputs_push.iter().enumerate();
            self.boxes[index].outputs = outputs
                .map(|(port, pushes)| DrawnPort { pulls: !*pushes, is_agnostic: is_agnostic(true, port) })
                .collect();
            count += ports.inputs_pull.len() + ports.outputs_push.len();
            check_limit("ports", count, LINES_MAX)?;
        }
        Ok(())
    }

    /// Returns the port of a box's border that leads to a port of an element inside.
    fn border(&mut self, of: usize, is_output: bool, (element, port): (usize, u32), pulls: bool) -> usize {
        let drawn = &mut self.boxes[of];
        let ports = if is_output { &mut drawn.outputs } else { &mut drawn.inputs };
        *self.borders.entry((of, is_output, element, port)).or_insert_with(|| {
            ports.push(DrawnPort { pulls, is_agnostic: false });
            ports.len() - 1
        })
    }

    /// Returns the boxes around an element, from its own to the whole picture.
    fn path(&self, element: usize) -> Vec<usize> {
        let mut path = vec![self.box_of[element]];
        while let Some(&last) = path.last()
            && last != 0
        {
            path.push(self.boxes[last].parent);
        }
        path
    }

    fn add_lines(&mut self, ports: &[ElementPorts]) -> Result<(), DrawingError> {
        let mut seen = BTreeSet::new();
        for (connection, line) in self.configuration.connections.iter().enumerate() {
            let (from, to) = (self.path(line.from.0), self.path(line.to.0));
            if from[0] == to[0] && !matches!(self.boxes[from[0]].content, BoxContent::Element(_)) {
                continue;
            }
            let pulls = !ports[line.from.0].outputs_push.get(line.from.1 as usize).copied().unwrap_or(true);
            // The innermost box around both.
            let shared = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
            let shared = shared.min(from.len() - 1).min(to.len() - 1);
            let (up, down) = (from.len() - shared, to.len() - shared);
            let end = |tree: &mut Self, of: usize, is_output: bool| match tree.boxes[of].content {
                BoxContent::Element(_) => (of, if is_output { line.from.1 } else { line.to.1 } as usize),
                _ => (of, tree.border(of, is_output, if is_output { line.from } else { line.to }, pulls)),
            };
            let mut ends: Vec<(usize, usize)> =
                from[..up].iter().map(|of| end(&mut *self, *of, true)).collect();
            let below: Vec<(usize, usize)> =
                to[..down].iter().map(|of| end(&mut *self, *of, false)).collect();
            ends.extend(below.into_iter().rev());
            for (index, pair) in ends.windows(2).enumerate() {
                let (from, to) = (pair[0], pair[1]);
                // Lines go up through borders, across in the shared box, then down through borders.
                let around = if index + 1 < up { to.0 } else { self.boxes[to.0].parent };
                if seen.insert((around, from, to)) {
                    self.boxes[around].lines.push(DrawnLine { from, to, pulls, connection });
                    check_limit("lines", seen.len(), LINES_MAX)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of elements inside of each compound element, with those of compound elements inside.
fn components(configuration: &FlatConfiguration) -> Vec<usize> {
    let compounds = &configuration.compounds;
    let mut counts: Vec<usize> = compounds.iter().map(|compound| compound.elements.len()).collect();
    for (index, compound) in compounds.iter().enumerate().rev() {
        if let Some(parent) = compound.parent {
            counts[parent] += counts[index];
        }
    }
    counts
}

/// Returns the greatest depth, `wanted` at most, for which the boxes are not too many.
fn fitting_depth(configuration: &FlatConfiguration, wanted: usize) -> Result<usize, DrawingError> {
    let compounds = &configuration.compounds;
    // The numbers of compound elements and of elements at each depth.
    let mut levels: Vec<usize> = Vec::with_capacity(compounds.len());
    let mut boxes: Vec<usize> = vec![0];
    let mut inside = 0;
    for compound in compounds {
        let level = compound.parent.map_or(0, |parent| levels[parent] + 1);
        levels.push(level);
        boxes.resize(boxes.len().max(level + 2), 0);
        boxes[level] += 1;
        boxes[level + 1] += compound.elements.len();
        inside += compound.elements.len();
    }
    boxes[0] += configuration.elements.len().saturating_sub(inside);
    check_limit("boxes", boxes[0], BOXES_MAX)?;
    let (mut sum, mut fitting) = (0, 0);
    for (depth, count) in boxes.iter().enumerate() {
        sum += count;
        if sum > BOXES_MAX {
            return Ok(fitting.min(wanted));
        }
        fitting = depth;
    }
    Ok(wanted)
}
