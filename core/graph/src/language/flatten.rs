//! Expansion of compound elements: an instance of a body for each use of its class.

use super::body::{
    BodyId, BodyNodeName, ClassDefinition, ClassId, NameId, NameSet, NodeKind, ParameterKeyword, REST,
};
use super::error::{LanguageErrors, LanguageFault, LanguageNote};
use super::landmark::SourcePosition;
use super::limits::{
    CHOICE_STEPS_MAX, EXPANSION_DEPTH_MAX, FLAT_CONNECTIONS_MAX, FLAT_ELEMENTS_MAX, FLAT_TEXT_BYTES_MAX,
};
use super::parser::{FILE_BODY, LanguageParser};
use super::tunnels::{FlatEdge, FlatNode, TunnelEnds};
use super::variables::{VariableFrame, VariableValue};
use super::{CompoundDeclaration, ElementDeclaration, FlatConfiguration, Landmark};
use crate::arguments::text::split_arguments;
use std::collections::HashMap;
use std::sync::Arc;

/// A limit was reached, and was reported.
pub(crate) struct StopExpansion;

/// The result of a part of the expansion.
pub(crate) type Expanded<T = ()> = Result<T, StopExpansion>;

/// The state of the expansion.
pub(crate) struct Flattener<'e> {
    pub parser: LanguageParser<'e>,
    pub elements: Vec<ElementDeclaration>,
    compounds: Vec<CompoundDeclaration>,
    /// The indices of the compound elements around the body that is expanded.
    open_compounds: Vec<usize>,
    /// The places of `elements`, and the names of those that are no components.
    declared: Vec<(SourcePosition, Option<NameId>)>,
    /// The classes of `elements`.
    used_classes: NameSet,
    /// The places of all elements by name, if a component can have the name of another element.
    taken: Option<HashMap<Arc<str>, SourcePosition>>,
    pub nodes: Vec<FlatNode>,
    pub edges: Vec<FlatEdge>,
    /// The compound elements and groups, for messages.
    pub owners: Vec<(Arc<str>, SourcePosition)>,
    pub frames: Vec<VariableFrame>,
    pub variable_depth: usize,
    instances_left: usize,
    text_left: usize,
    choice_steps_left: usize,
}

/// A compound element that is expanded after the other elements of its body.
struct PendingInstance {
    node: usize,
    name: Arc<str>,
    body: BodyId,
    arguments: Vec<Arc<str>>,
    position: SourcePosition,
}

/// Expands all compound elements of a parsed configuration.
///
/// # Errors
///
/// All errors of the expansion.
pub(crate) fn flatten(parser: LanguageParser<'_>) -> Result<FlatConfiguration, LanguageErrors> {
    // Names of the text without a slash differ from those of components.
    let taken = parser.names.has_slashes().then(HashMap::new);
    let mut flattener = Flattener {
        parser,
        elements: Vec::new(),
        compounds: Vec::new(),
        open_compounds: Vec::new(),
        declared: Vec::new(),
        used_classes: NameSet::default(),
        taken,
        nodes: Vec::new(),
        edges: Vec::new(),
        owners: Vec::new(),
        frames: Vec::new(),
        variable_depth: 0,
        instances_left: FLAT_ELEMENTS_MAX,
        text_left: FLAT_TEXT_BYTES_MAX,
        choice_steps_left: CHOICE_STEPS_MAX,
    };
    let connections = flattener.expand_all().unwrap_or_default();
    let Flattener { parser, elements, compounds, .. } = flattener;
    if !parser.report.errors.is_empty() {
        return Err(parser.report);
    }
    Ok(FlatConfiguration {
        text: Arc::default(),
        elements,
        compounds,
        connections,
        requirements: parser.requirements,
        members: Vec::new(),
        warnings: parser.report.warnings,
    })
}

impl Flattener<'_> {
    fn expand_all(&mut self) -> Expanded<Vec<super::ElementConnection>> {
        self.push_frame(None, FILE_BODY, Vec::new());
        self.expand_body(FILE_BODY, "", None)?;
        self.check_names();
        self.follow_connections()
    }

    /// Reports elements that have the name of a class, which a connection would take for the class.
    fn check_names(&mut self) {
        let has_slashes = self.taken.is_some();
        let is_class = |(element, (_, name)): &(&ElementDeclaration, &(SourcePosition, Option<NameId>))| {
            let name = match name {
                Some(name) => Some(*name),
                None if has_slashes => self.parser.names.find(&element.name),
                None => None,
            };
            name.is_some_and(|name| self.used_classes.contains(&name))
        };
        let conflicts: Vec<(SourcePosition, String)> = self
            .elements
            .iter()
            .zip(&self.declared)
            .filter(is_class)
            .map(|(element, (position, _))| (*position, element.name.to_string()))
            .collect();
        for (position, name) in conflicts {
            self.error(position, LanguageFault::ClassAsName(name));
        }
    }

    pub fn error(&mut self, position: SourcePosition, fault: LanguageFault) {
        self.parser.error(position, fault);
    }

    /// Reports a limit.
    pub fn stop(&mut self, position: SourcePosition, what: &'static str, max: usize) -> StopExpansion {
        self.error(position, LanguageFault::Limit { what, max });
        StopExpansion
    }

    /// Charges bytes of the flat configuration to their limit.
    pub fn charge_text(&mut self, bytes: usize, position: SourcePosition) -> Expanded {
        match self.text_left.checked_sub(bytes) {
            Some(left) => {
                self.text_left = left;
                Ok(())
            }
            None => Err(self.stop(position, "bytes of the expanded configuration", FLAT_TEXT_BYTES_MAX)),
        }
    }

    pub fn landmark(&self, position: SourcePosition) -> Landmark {
        self.parser.sources[position.file as usize].landmark(position.at)
    }

    fn push_frame(&mut self, parent: Option<usize>, body: BodyId, arguments: Vec<Arc<str>>) {
        let arguments = arguments.into_iter().map(VariableValue::Expanded);
        let of_body = &self.parser.bodies[body];
        let written = of_body.variables.iter().filter_map(|variable| variable.value.clone());
        let values = arguments.chain(written.map(VariableValue::Written)).collect();
        self.frames.push(VariableFrame { parent, depth: of_body.depth, body, values });
    }

    /// Adds the nodes and the connections of a body, with the last frame, then those of its compound elements. `tunnel`
    /// is the node of the compound element that is expanded.
    fn expand_body(&mut self, body: BodyId, prefix: &str, tunnel: Option<(usize, usize)>) -> Expanded {
        let frame = self.frames.len() - 1;
        let (first, first_element) = (self.nodes.len(), self.elements.len());
        let mut pending = Vec::new();
        for index in 0..self.parser.bodies[body].nodes.len() {
            let node = self.add_node(body, index, (prefix, frame), tunnel, &mut pending)?;
            self.nodes.push(node);
        }
        if let Some(compound) = self.open_compounds.last() {
            self.compounds[*compound].elements = first_element..self.elements.len();
        }
        if let Some((outer, owner)) = tunnel {
            let ends = TunnelEnds { exit: Some(first), entry: Some(first + 1), owner, is_inner: false };
            self.nodes[outer] = FlatNode::Tunnel(ends);
        }
        let of_body = &self.parser.bodies[body];
        if self.edges.len() + of_body.connections.len() > FLAT_CONNECTIONS_MAX {
            let position = of_body.position;
            return Err(self.stop(position, "connections", FLAT_CONNECTIONS_MAX));
        }
        let end = |(node, port): (usize, u32)| (first + node, port);
        self.edges.extend(of_body.connections.iter().map(|connection| FlatEdge {
            from: end(connection.from),
            to: end(connection.to),
            position: connection.position,
        }));
        for instance in pending {
            self.expand_instance(instance, frame)?;
        }
        Ok(())
    }

    fn expand_instance(&mut self, instance: PendingInstance, frame: usize) -> Expanded {
        let PendingInstance { node, name, body, arguments, position } = instance;
        if self.frames.len() > EXPANSION_DEPTH_MAX {
            return Err(self.stop(position, "nested compound elements", EXPANSION_DEPTH_MAX));
        }
        let owner = self.owners.len();
        self.owners.push((Arc::clone(&name), position));
        let class = self.parser.bodies[body].class.map(|class| Arc::clone(self.parser.names.get(class)));
        let parent = self.open_compounds.last().copied();
        self.open_compounds.push(self.compounds.len());
        self.compounds.push(CompoundDeclaration { name: Arc::clone(&name), class, parent, elements: 0..0 });
        // The variables around the definition are those of an instance that contains this one.
        let depth = self.parser.bodies[body].depth;
        let mut parent = Some(frame);
        while let Some(index) = parent
            && self.frames[index].depth >= depth
        {
            parent = self.frames[index].parent;
        }
        self.push_frame(parent, body, arguments);
        let expanded = self.expand_body(body, &format!("{name}/"), Some((node, owner)));
        self.frames.pop();
        self.open_compounds.pop();
        expanded
    }

    /// Makes the flat node of a body's node. Adds its element, or its compound element to `pending`.
    fn add_node(
        &mut self,
        body: BodyId,
        index: usize,
        (prefix, frame): (&str, usize),
        tunnel: Option<(usize, usize)>,
        pending: &mut Vec<PendingInstance>,
    ) -> Expanded<FlatNode> {
        let node = &self.parser.bodies[body].nodes[index];
        let (position, configuration) = (node.position, Arc::clone(&node.configuration));
        let flat = self.nodes.len();
        let inner =
            |exit, entry, owner| Ok(FlatNode::Tunnel(TunnelEnds { exit, entry, owner, is_inner: true }));
        let class = match (node.kind, tunnel) {
            (NodeKind::Input, Some((outer, owner))) => return inner(None, Some(outer), owner),
            (NodeKind::Output, Some((outer, owner))) => return inner(Some(outer), None, owner),
            (NodeKind::Group, _) => {
                let owner = self.owners.len();
                self.owners.push(("<anonymous group>".into(), position));
                let (exit, entry) = (Some(flat + 1), Some(flat + 2));
                return Ok(FlatNode::Tunnel(TunnelEnds { exit, entry, owner, is_inner: false }));
            }
            (NodeKind::GroupInput, _) => return inner(None, Some(flat - 1), self.owners.len() - 1),
            (NodeKind::GroupOutput(_), _) => return inner(Some(flat - 2), None, self.owners.len() - 1),
            (NodeKind::Element(class), _) => class,
            (NodeKind::Input | NodeKind::Output | NodeKind::Erroneous, _) => {
                return Ok(FlatNode::Unconnected);
            }
        };
        let BodyNodeName::Named(own_name) = node.name else { return Ok(FlatNode::Unconnected) };
        let (name, own_name): (Arc<str>, _) = match prefix {
            "" => (Arc::clone(self.parser.names.get(own_name)), Some(own_name)),
            _ => (format!("{prefix}{}", self.parser.names.get(own_name)).into(), None),
        };
        if self.instances_left == 0 {
            return Err(self.stop(position, "elements", FLAT_ELEMENTS_MAX));
        }
        self.instances_left -= 1;
        self.charge_text(name.len() + configuration.len(), position)?;
        let taken = self.taken.as_mut();
        if let Some(other) = taken.and_then(|taken| taken.insert(Arc::clone(&name), position)) {
            let landmark = self.landmark(other);
            let text = format!("element '{name}' previously declared here");
            let fault = LanguageFault::Redeclared(name.to_string());
            self.parser.error_with(position, fault, None, vec![LanguageNote { landmark, text }]);
            return Ok(FlatNode::Unconnected);
        }
        let configuration = self.expand_configuration(&configuration, frame, position)?;
        let class = match self.parser.classes[class] {
            ClassDefinition::Primitive(class) => class,
            ClassDefinition::Compound { .. } => {
                match self.choose(class, (body, index), &configuration, position)? {
                    Some((ChosenClass::Primitive(class), _)) => class,
                    Some((ChosenClass::Body(body), arguments)) => {
                        pending.push(PendingInstance { node: flat, name, body, arguments, position });
                        return Ok(FlatNode::Unconnected);
                    }
                    None => return Ok(FlatNode::Unconnected),
                }
            }
        };
        self.used_classes.insert(class);
        self.declared.push((position, own_name));
        let class = Arc::clone(self.parser.names.get(class));
        let landmark = self.landmark(position);
        self.elements.push(ElementDeclaration { name, class, configuration, landmark });
        Ok(FlatNode::Element(self.elements.len() - 1))
    }

    /// Chooses the definition of a compound element that fits its ports and its arguments, and assigns the arguments to
    /// the parameters.
    fn choose(
        &mut self,
        class: ClassId,
        (body, node): (BodyId, usize),
        configuration: &str,
        position: SourcePosition,
    ) -> Expanded<Option<(ChosenClass, Vec<Arc<str>>)>> {
        let arguments: Vec<Arc<str>> = split_arguments(configuration).into_iter().map(Arc::from).collect();
        let ports = self.parser.bodies[body].used.get(&node).map_or((0, 0), super::body::UsedPorts::counts);
        let (mut candidates, mut closest) = (Vec::new(), None);
        let mut next = Some(class);
        while let Some(class) = next {
            let ClassDefinition::Compound { body, overload } = self.parser.classes[class] else {
                let ClassDefinition::Primitive(name) = self.parser.classes[class] else { break };
                return Ok(Some((ChosenClass::Primitive(name), Vec::new())));
            };
            let steps = (1 + self.parser.bodies[body].parameters.len()) * (1 + arguments.len());
            let Some(left) = self.choice_steps_left.checked_sub(steps) else {
                return Err(self.stop(
                    position,
                    "comparisons of arguments with parameters",
                    CHOICE_STEPS_MAX,
                ));
            };
            self.choice_steps_left = left;
            let definition = &self.parser.bodies[body];
            if let Some(values) = assign(&definition.parameters, &arguments) {
                if (definition.inputs, definition.outputs) == ports {
                    return Ok(Some((ChosenClass::Body(body), values)));
                }
                closest = Some((ChosenClass::Body(body), values));
            }
            candidates.push(body);
            next = overload;
        }
        // A single definition whose arguments fit is expanded: the ports give clearer messages.
        if candidates.len() == 1 && closest.is_some() {
            return Ok(closest);
        }
        self.no_match(&candidates, (arguments.len(), ports), position);
        Ok(None)
    }

    fn no_match(
        &mut self,
        candidates: &[BodyId],
        (arguments, (inputs, outputs)): (usize, (u32, u32)),
        position: SourcePosition,
    ) {
        /// The most definitions that a message lists.
        const CANDIDATES_MAX: usize = 10;
        let class_name = |body: BodyId| -> Arc<str> {
            let class = self.parser.bodies[body].class;
            class.map_or("<anonymous>".into(), |class| Arc::clone(self.parser.names.get(class)))
        };
        let plural = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let ports = |inputs: u32, outputs: u32| {
            format!("{}, {}", plural(inputs as usize, "input"), plural(outputs as usize, "output"))
        };
        let mut notes = Vec::new();
        for body in candidates.iter().take(CANDIDATES_MAX) {
            let definition = &self.parser.bodies[*body];
            let mut text = format!("candidate: {}", class_name(*body));
            if !definition.parameters.is_empty() {
                let shown = definition.parameters.iter().map(|keyword| match keyword.as_deref() {
                    None => "<arg>",
                    Some(REST) => "...",
                    Some(keyword) => keyword,
                });
                text += &format!("({})", shown.collect::<Vec<_>>().join(", "));
            }
            text += &format!("[{}]", ports(definition.inputs, definition.outputs));
            notes.push(LanguageNote { landmark: self.landmark(definition.position), text });
        }
        let class = candidates.first().map_or("<anonymous>".into(), |body| class_name(*body));
        let arguments =
            if arguments == 0 { String::new() } else { format!("{}, ", plural(arguments, "argument")) };
        let use_of = format!("{class}[{arguments}{}]", ports(inputs, outputs));
        self.parser.error_with(position, LanguageFault::NoMatch(use_of), None, notes);
    }
}

/// The class of an element after the choice among definitions.
enum ChosenClass {
    Primitive(NameId),
    Body(BodyId),
}

/// Assigns arguments to parameters, in the parameters' order. `None` if they do not fit.
fn assign(parameters: &[ParameterKeyword], arguments: &[Arc<str>]) -> Option<Vec<Arc<str>>> {
    let has_rest = parameters.last().is_some_and(|last| last.as_deref() == Some(REST));
    let parameters = &parameters[..parameters.len() - usize::from(has_rest)];
    let positional = parameters.iter().take_while(|keyword| keyword.is_none()).count();
    let mut values: Vec<Option<Arc<str>>> = vec![None; parameters.len()];
    let mut rest: Vec<&str> = Vec::new();
    let mut supplied = 0;
    for argument in arguments {
        // The first arguments are positional, even if they begin with a keyword.
        if supplied < positional {
            values[supplied] = Some(Arc::clone(argument));
            supplied += 1;
            continue;
        }
        let (word, value) = crate::arguments::split_keyword(argument).unwrap_or(("", argument));
        match parameters.iter().position(|keyword| keyword.as_deref() == Some(word)) {
            Some(slot) => values[slot] = Some(value.into()),
            None if has_rest => rest.push(argument),
            None => return None,
        }
    }
    let mut values: Vec<Arc<str>> = values.into_iter().collect::<Option<_>>()?;
    if has_rest {
        values.push(rest.join(", ").into());
    }
    Some(values)
}
