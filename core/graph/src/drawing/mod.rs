//! Pictures of graphs, as SVG or in the language of Graphviz.
//!
//! [`draw`] lays a configuration out in layers, so that packets go from the top to the bottom. Ports have the shapes of
//! Click's papers: an input is a triangle and an output is a rectangle; a port that pushes is black, a port that pulls
//! is white, and an agnostic port has a second outline. A compound element is a box around its components.
//!
//! # Steps
//!
//! 1. [`tree`] makes a box of each element and each compound element. A connection into a compound element becomes two:
//!    one to the border of its box, and one inside.
//! 2. [`layout`] places the boxes of each compound element, from the innermost to the outermost: [`layers`] breaks
//!    cycles and gives each box a layer, [`order`] orders each layer such that few connections cross, and [`place`]
//!    aligns the boxes.
//! 3. [`route`] draws connections as vertical and horizontal lines. Horizontal lines lie between layers, and vertical
//!    lines have places of their own in a layer, so a line never goes through a box.
//! 4. [`svg`] writes the picture.
//!
//! Everything is deterministic: the same configuration gives the same bytes. Work is bounded by [`BOXES_MAX`],
//! [`LINES_MAX`] and [`BENDS_MAX`].
//!
//! - K. Sugiyama, S. Tagawa, M. Toda: "Methods for Visual Understanding of Hierarchical System Structures", IEEE
//!   Transactions on Systems, Man, and Cybernetics 11(2), 1981: layers, their order, and places in them.

mod dot;
mod layers;
mod layout;
mod order;
mod place;
mod route;
mod svg;
mod text;
mod tree;

use crate::engine::{Effects, ElementCost, OrderDependence};
use crate::engine::{ElementClass, ElementClasses, ElementPorts, GraphError, connect_ports};
use crate::language::FlatConfiguration;
use std::collections::BTreeMap;

/// The most boxes of a picture. With more, compound elements are drawn as single boxes.
pub const BOXES_MAX: usize = 5_000;
/// The most lines and the most ports of a picture.
pub const LINES_MAX: usize = 20_000;
/// The most places at which lines pass through layers.
pub const BENDS_MAX: usize = 100_000;

/// The form of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawingFormat {
    /// Scalable vector graphics.
    #[default]
    Svg,
    /// The language of Graphviz.
    Dot,
}

/// The choices for a picture.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrawingOptions {
    /// The form.
    pub format: DrawingFormat,
    /// The number of nested compound elements that are drawn open. `None` is as many as fit.
    pub depth: Option<usize>,
}

/// A picture of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphDrawing {
    /// The picture.
    pub text: String,
    /// The number of compound elements that are drawn as single boxes because the picture would have too many boxes.
    pub collapsed: usize,
}

/// Errors of [`draw`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawingError {
    /// The connections of the configuration are wrong.
    #[error("the configuration has errors")]
    Graph(Vec<GraphError>),
    /// Too much to draw.
    #[error(
        "the picture would have {count} {what}, and can have {max}; put parts of the configuration into compound \
         elements, and draw fewer of them open (`--depth`)"
    )]
    Limit {
        /// The things that are too many.
        what: &'static str,
        /// Their number, as far as it was counted.
        count: usize,
        /// The most.
        max: usize,
    },
}

/// The class of elements whose class is unknown: its ports are agnostic, and do not depend on each other.
static UNKNOWN: ElementClass = ElementClass {
    name: "?",
    ports: "-/-",
    processing: "a/a",
    flow: "x/y",
    cost: ElementCost::E7,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "",
    build: |cx| {
        let crate::arguments::ArgumentContext { element, class, landmark, .. } = cx.argument_context();
        let (element, class) = ((*element).to_owned(), (*class).to_owned());
        Err(crate::arguments::ArgumentErrors {
            element,
            class,
            landmark: (*landmark).clone(),
            errors: Vec::new(),
        })
    },
};

/// Draws a configuration. Elements of unknown classes are drawn, too.
///
/// # Errors
///
/// Fails if connections are wrong, or if the picture would be too large.
pub fn draw(
    configuration: &FlatConfiguration,
    classes: &dyn ElementClasses,
    options: &DrawingOptions,
) -> Result<GraphDrawing, DrawingError> {
    draw_with_notes(configuration, classes, options, &BTreeMap::new())
}

/// Draws a configuration as [`draw`] does, with further lines in the boxes of elements, by the names of these.
///
/// # Errors
///
/// As for [`draw`].
pub fn draw_with_notes(
    configuration: &FlatConfiguration,
    classes: &dyn ElementClasses,
    options: &DrawingOptions,
    notes: &BTreeMap<String, Vec<String>>,
) -> Result<GraphDrawing, DrawingError> {
    let FlatConfiguration { elements, connections, .. } = configuration;
    let known: Vec<&ElementClass> =
        elements.iter().map(|element| classes.find(&element.class).unwrap_or(&UNKNOWN)).collect();
    let ports: Vec<ElementPorts> =
        connect_ports(elements, connections, &known).map_err(DrawingError::Graph)?;
    let tree = tree::DrawingTree::new(configuration, &known, &ports, options.depth, notes)?;
    let text = match options.format {
        DrawingFormat::Svg => svg::write(&tree, &layout::lay_out(&tree)?),
        DrawingFormat::Dot => dot::write(&tree),
    };
    Ok(GraphDrawing { text, collapsed: tree.collapsed })
}

/// Checks a number against its limit.
fn check_limit(what: &'static str, count: usize, max: usize) -> Result<(), DrawingError> {
    if count > max { Err(DrawingError::Limit { what, count, max }) } else { Ok(()) }
}
