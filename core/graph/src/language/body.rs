//! The parsed form of a configuration, before compound elements are expanded.

use super::landmark::SourcePosition;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// An index into a [`NameTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameId(u32);

/// Hashes a [`NameId`]. The ids are consecutive numbers, so texts cannot be chosen such that hashes collide.
#[derive(Clone, Copy, Default)]
pub(crate) struct NameIdHasher(u64);

impl Hasher for NameIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        // The golden ratio: consecutive ids differ in the bits that a hash table uses.
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// A map with names as keys.
pub(crate) type NameMap<T> = HashMap<NameId, T, BuildHasherDefault<NameIdHasher>>;
/// A set of names.
pub(crate) type NameSet = HashSet<NameId, BuildHasherDefault<NameIdHasher>>;

/// All names of a configuration, each stored once.
#[derive(Default)]
pub(crate) struct NameTable {
    ids: HashMap<Arc<str>, NameId>,
    names: Vec<Arc<str>>,
}

impl NameTable {
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = NameId(super::landmark::index(self.names.len()));
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.ids.insert(name, id);
        id
    }

    pub fn find(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied()
    }

    /// Returns true if some name contains a slash, as the names of components do.
    pub fn has_slashes(&self) -> bool {
        self.names.iter().any(|name| name.contains('/'))
    }

    pub fn get(&self, id: NameId) -> &Arc<str> {
        &self.names[id.0 as usize]
    }
}

/// An index of a [`Body`].
pub(crate) type BodyId = usize;
/// An index of a [`ClassDefinition`].
pub(crate) type ClassId = usize;

/// An element class, as one definition of it sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClassDefinition {
    /// A class of the program.
    Primitive(NameId),
    /// A definition in the configuration, and the class whose definitions follow.
    Compound { body: BodyId, overload: Option<ClassId> },
}

/// A variable of a scope.
pub(crate) struct BodyVariable {
    pub name: NameId,
    /// The text of `define`; `None` for a parameter.
    pub value: Option<Arc<str>>,
    pub position: Option<SourcePosition>,
}

/// A parameter's keyword, `None` for a positional one.
pub(crate) type ParameterKeyword = Option<Arc<str>>;
/// The keyword of the parameter that takes the remaining arguments.
pub(crate) const REST: &str = "__REST__";

/// The name of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyNodeName {
    Named(NameId),
    /// Becomes `CLASS@NUMBER` when the body is complete. `None` is the class of a compound element without a name.
    Anonymous(Option<NameId>, usize),
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Element(ClassId),
    /// `input` of the body.
    Input,
    /// `output` of the body.
    Output,
    /// An element group. The nodes of its `input` and `output` follow it.
    Group,
    GroupInput,
    /// The output of the group at this index.
    GroupOutput(usize),
    /// A name that was reported as an error.
    Erroneous,
}

/// An element, or something that has ports as an element has.
pub(crate) struct BodyNode {
    pub kind: NodeKind,
    pub name: BodyNodeName,
    pub configuration: Arc<str>,
    pub position: SourcePosition,
}

/// A connection from an output to an input: indices of nodes, and ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyConnection {
    pub from: (usize, u32),
    pub to: (usize, u32),
    pub position: SourcePosition,
}

/// The ports of a node that have connections, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedPorts {
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
}

impl UsedPorts {
    /// Returns the number of inputs and of outputs: one more than the highest port.
    pub fn counts(&self) -> (u32, u32) {
        let count = |ports: &[u32]| ports.last().map_or(0, |last| last + 1);
        (count(&self.inputs), count(&self.outputs))
    }
}

/// The statements of a file, or of one definition of a compound element.
pub(crate) struct Body {
    /// The number of bodies around this one.
    pub depth: usize,
    /// The class; `None` without a name.
    pub class: Option<NameId>,
    pub position: SourcePosition,
    /// Parameters first, in their order, then the variables of `define`.
    pub variables: Vec<BodyVariable>,
    pub variable_index: NameMap<usize>,
    /// The keywords of the parameters.
    pub parameters: Vec<ParameterKeyword>,
    pub nodes: Vec<BodyNode>,
    pub node_index: NameMap<usize>,
    pub connections: Vec<BodyConnection>,
    /// The ports of the elements with compound classes.
    pub used: HashMap<usize, UsedPorts>,
    pub inputs: u32,
    pub outputs: u32,
}

impl Body {
    pub fn new(depth: usize, class: Option<NameId>, position: SourcePosition) -> Self {
        Self {
            depth,
            class,
            position,
            variables: Vec::new(),
            variable_index: NameMap::default(),
            parameters: Vec::new(),
            nodes: Vec::new(),
            node_index: NameMap::default(),
            connections: Vec::new(),
            used: HashMap::new(),
            inputs: 0,
            outputs: 0,
        }
    }

    /// Returns the number in the name of the next anonymous element. Click counts all nodes of the body.
    pub fn next_number(&self) -> usize {
        let pseudo_elements = if self.depth > 0 { 2 } else { 0 };
        self.nodes.len() - pseudo_elements + 1
    }

    pub fn add_node(&mut self, node: BodyNode) -> usize {
        let index = self.nodes.len();
        if let BodyNodeName::Named(name) = node.name {
            self.node_index.insert(name, index);
        }
        self.nodes.push(node);
        index
    }

    /// Gives every anonymous element a name that no other element of the body has.
    pub fn name_anonymous(&mut self, names: &mut NameTable) {
        // For a name that is taken, a number from which on to look for a free one.
        let mut skips: HashMap<(Option<NameId>, usize), usize> = HashMap::new();
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let BodyNodeName::Anonymous(class, first) = node.name else { continue };
            if !matches!(node.kind, NodeKind::Element(_)) {
                continue;
            }
            let class_name = class.map_or("".into(), |class| Arc::clone(names.get(class)));
            let mut number = first;
            let mut passed = Vec::new();
            let name = loop {
                if let Some(next) = skips.get(&(class, number)) {
                    passed.push(number);
                    number = *next;
                    continue;
                }
                let name = names.intern(&format!("{class_name}@{number}"));
                if !self.node_index.contains_key(&name) {
                    break name;
                }
                passed.push(number);
                number += 1;
            };
            passed.push(number);
            for taken in passed {
                skips.insert((class, taken), number + 1);
            }
            self.nodes[index].name = BodyNodeName::Named(name);
            self.node_index.insert(name, index);
        }
    }
}
