//! Elements in connections: references, declarations, anonymous elements, and groups.

use super::connection::{ConnectedNode, PortList};
use super::{Enclosure, LanguageParser, Parsed, SkipStatement};
use crate::language::body::{BodyNode, BodyNodeName, ClassId, NameId, NodeKind};
use crate::language::error::LanguageFault;
use crate::language::landmark::SourcePosition;
use crate::language::limits::NESTING_MAX;
use crate::language::token::{LanguageToken, LanguageTokenKind, Symbol};
use std::sync::Arc;

/// The beginning of an element's text.
#[derive(Clone, Copy)]
enum ElementHead {
    /// The name of an element or of a class.
    Name(NameId),
    /// A compound element without a name for its class.
    Compound(ClassId),
    /// The node of a group.
    Group(usize),
}

/// An element as written in a list, before it is known to be a reference or a declaration.
struct ListedElement {
    head: ElementHead,
    /// The class after `::`.
    declared: Option<ClassId>,
    configuration: Option<Arc<str>>,
    inputs: PortList,
    outputs: PortList,
    position: SourcePosition,
}

impl ListedElement {
    fn is_bare(&self) -> bool {
        self.declared.is_none() && self.configuration.is_none() && matches!(self.head, ElementHead::Name(_))
    }
}

impl LanguageParser<'_> {
    /// Parses elements between commas, and adds those that are declared.
    pub(super) fn element_list(&mut self, is_first: bool, is_nested: bool) -> Parsed<Vec<ConnectedNode>> {
        let mut listed = Vec::new();
        let mut has_implicit = false;
        loop {
            let inputs = self.ports()?;
            let token = self.next();
            if !self.begins_element(token) {
                self.scanner.put_back(token);
                let has_ports = inputs.is_written;
                let can_be_implicit = has_ports || listed.is_empty();
                let is_implicit = is_nested
                    && match token.kind {
                        LanguageTokenKind::Symbol(Symbol::Arrow | Symbol::DoubleArrow) => {
                            is_first && can_be_implicit
                        }
                        LanguageTokenKind::Symbol(Symbol::Comma) => has_ports,
                        LanguageTokenKind::Symbol(Symbol::DoubleColon) => false,
                        _ => !is_first && can_be_implicit,
                    };
                if !is_implicit {
                    if has_ports {
                        self.error(self.scanner.position(token), LanguageFault::StrandedPort);
                        return Err(SkipStatement);
                    }
                    if listed.is_empty() {
                        let token = self.next();
                        return Err(self.syntax_error(token));
                    }
                    // A comma may end a list.
                    break;
                }
                has_implicit = true;
                listed.push(self.implicit_element(is_first, inputs, token));
            } else {
                listed.push(self.listed_element(token, inputs)?);
            }
            if !self.accept(Symbol::Comma) {
                break;
            }
        }
        let next = self.next();
        self.scanner.put_back(next);
        if has_implicit && !is_first && next.is_arrow() {
            self.error(self.scanner.position(next), LanguageFault::ImplicitInChain);
        }
        if is_first && !next.is_arrow() && !has_implicit {
            spread_declaration(&mut listed);
        }
        Ok(listed.into_iter().map(|element| self.add_listed(element)).collect())
    }

    fn begins_element(&self, token: LanguageToken) -> bool {
        token.kind == LanguageTokenKind::Identifier
            || token.is(Symbol::OpenBrace)
            || token.is(Symbol::OpenParenthesis)
    }

    /// Returns `input` at the begin of a chain, or `output` at its end.
    fn implicit_element(&mut self, is_first: bool, ports: PortList, token: LanguageToken) -> ListedElement {
        let name = self.names.intern(if is_first { "input" } else { "output" });
        let (inputs, outputs) =
            if is_first { (PortList::default(), ports) } else { (ports, PortList::default()) };
        let position = self.scanner.position(token);
        ListedElement {
            head: ElementHead::Name(name),
            declared: None,
            configuration: None,
            inputs,
            outputs,
            position,
        }
    }

    /// Parses an element that begins with `token`, after its input ports.
    fn listed_element(&mut self, token: LanguageToken, inputs: PortList) -> Parsed<ListedElement> {
        let position = self.scanner.position(token);
        let mut element = ListedElement {
            head: ElementHead::Group(0),
            declared: None,
            configuration: None,
            inputs,
            outputs: PortList::default(),
            position,
        };
        if token.is(Symbol::OpenBrace) {
            element.head = ElementHead::Compound(self.compound(None, token)?);
        } else if token.is(Symbol::OpenParenthesis) {
            let (group, inputs, outputs) = self.group(token)?;
            element.head = ElementHead::Group(group);
            if !element.inputs.is_written {
                element.inputs = inputs;
            }
            element.outputs = outputs;
        } else {
            element.head = ElementHead::Name(self.intern(token));
        }
        // Groups have neither a class nor a configuration.
        if let ElementHead::Group(_) = element.head {
            let outputs = self.ports()?;
            if outputs.is_written {
                element.outputs = outputs;
            }
            return Ok(element);
        }
        if matches!(element.head, ElementHead::Name(_)) && self.accept(Symbol::DoubleColon) {
            let token = self.next();
            if token.kind == LanguageTokenKind::Identifier {
                element.declared = Some(self.force_class(token));
            } else if token.is(Symbol::OpenBrace) {
                element.declared = Some(self.compound(None, token)?);
            } else {
                self.error(self.scanner.position(token), LanguageFault::MissingClass);
                self.scanner.put_back(token);
                return Err(SkipStatement);
            }
        }
        let token = self.next();
        if token.is(Symbol::OpenParenthesis) {
            element.configuration = Some(self.configuration(token)?);
        } else {
            self.scanner.put_back(token);
        }
        let outputs = self.ports()?;
        if outputs.is_written {
            element.outputs = outputs;
        }
        Ok(element)
    }

    /// Adds the element if its text declares one. Returns its node and ports.
    fn add_listed(&mut self, element: ListedElement) -> ConnectedNode {
        let node = self.resolve(&element);
        ConnectedNode { node, inputs: element.inputs, outputs: element.outputs, position: element.position }
    }

    fn resolve(&mut self, element: &ListedElement) -> usize {
        let position = element.position;
        let configuration = || element.configuration.clone().unwrap_or_else(|| "".into());
        let (name, class) = match element.head {
            ElementHead::Group(node) => return node,
            ElementHead::Compound(class) => (None, Some(class)),
            ElementHead::Name(name) => (Some(name), self.class_of_name(name, element)),
        };
        let existing = name.and_then(|name| self.bodies[self.body].node_index.get(&name).copied());
        match (class, name, existing) {
            (Some(class), name, _) => {
                if let Some(name) = name.filter(|_| element.declared.is_some()) {
                    let name = self.names.get(name).to_string();
                    self.error(position, LanguageFault::ClassAsName(name));
                }
                let number = self.bodies[self.body].next_number();
                let name = BodyNodeName::Anonymous(name, number);
                self.add_element(name, NodeKind::Element(class), configuration(), position)
            }
            (None, Some(name), Some(node)) => {
                if element.declared.is_some() {
                    let text = self.names.get(name).to_string();
                    let first = self.bodies[self.body].nodes[node].position;
                    let notes = self.declared_at(first, name);
                    self.error_with(position, LanguageFault::Redeclared(text), None, notes);
                } else if element.configuration.is_some() {
                    self.error(position, LanguageFault::ConfigurationOnReference);
                }
                node
            }
            (None, Some(name), None) => {
                let kind = match element.declared {
                    Some(class) => NodeKind::Element(class),
                    None => {
                        self.undeclared(name, position);
                        NodeKind::Erroneous
                    }
                };
                self.add_element(BodyNodeName::Named(name), kind, configuration(), position)
            }
            // A head has a name or a class.
            (None, None, _) => 0,
        }
    }

    /// Returns the class that a name in a connection means, or `None` if the name is that of an element.
    fn class_of_name(&mut self, name: NameId, element: &ListedElement) -> Option<ClassId> {
        let begins_as_class = self.names.get(name).starts_with(|first: char| first.is_ascii_uppercase());
        let is_class = element.declared.is_none()
            && (begins_as_class || element.configuration.is_some())
            && !self.bodies[self.body].node_index.contains_key(&name);
        self.find_class(name, is_class)
    }

    fn undeclared(&mut self, name: NameId, position: SourcePosition) {
        let text = self.names.get(name).to_string();
        let nearest = self.suggest(&text, |parser| {
            let elements = parser.bodies[parser.body].node_index.keys();
            let elements = elements.map(|name| parser.names.get(*name).to_string());
            elements.chain(parser.class_candidates()).collect()
        });
        self.error_with(position, LanguageFault::Undeclared(text), nearest, Vec::new());
    }

    /// Parses a group, whose parenthesis was read. Returns its node, and the ports that it has on both sides.
    fn group(&mut self, open: LanguageToken) -> Parsed<(usize, PortList, PortList)> {
        let position = self.scanner.position(open);
        if self.nesting >= NESTING_MAX {
            self.abort(position, "nested braces and groups", NESTING_MAX);
            return Err(SkipStatement);
        }
        let body = &mut self.bodies[self.body];
        let number = body.next_number();
        let name = BodyNodeName::Anonymous(None, number);
        let mut add = |kind| body.add_node(BodyNode { kind, name, configuration: "".into(), position });
        let group = add(NodeKind::Group);
        let (input, output) = (add(NodeKind::GroupInput), add(NodeKind::GroupOutput(group)));
        let first_connection = body.connections.len();
        let names = [self.names.intern("input"), self.names.intern("output")];
        let outer = names.map(|name| self.bodies[self.body].node_index.get(&name).copied());
        for (name, node) in names.into_iter().zip([input, output]) {
            self.bodies[self.body].node_index.insert(name, node);
        }
        self.nesting += 1;
        let close = self.statements(Enclosure::Group);
        self.nesting -= 1;
        for (name, node) in names.into_iter().zip(outer) {
            let index = &mut self.bodies[self.body].node_index;
            match node {
                Some(node) => index.insert(name, node),
                None => index.remove(&name),
            };
        }
        if !close.is(Symbol::CloseParenthesis) {
            self.error(position, LanguageFault::expected(Symbol::CloseParenthesis));
            if close.kind == LanguageTokenKind::End {
                self.scanner.put_back(close);
            }
            return Err(SkipStatement);
        }
        let counts =
            self.check_pseudo_elements("<anonymous group>", (input, output), first_connection, position);
        let ports = |count| PortList { ports: (0..count).collect(), is_open: false, is_written: false };
        Ok((group, ports(counts.0), ports(counts.1)))
    }
}

/// Gives the class and the configuration of the last element to those before it: `a, b :: Class(c)`.
fn spread_declaration(listed: &mut [ListedElement]) {
    let Some((last, others)) = listed.split_last_mut() else { return };
    let has_ports = |element: &ListedElement| element.inputs.is_written || element.outputs.is_written;
    if others.is_empty() || !others.iter().all(ListedElement::is_bare) || others.iter().any(has_ports) {
        return;
    }
    if has_ports(last) {
        return;
    }
    for element in others {
        element.declared = last.declared;
        element.configuration.clone_from(&last.configuration);
    }
}
