//! Compound elements, and the statement `elementclass`.

use super::{Enclosure, LanguageParser, Parsed, SkipStatement};
use crate::language::body::{
    Body, BodyId, BodyNode, BodyNodeName, BodyVariable, ClassDefinition, ClassId, NameId, NodeKind, REST,
};
use crate::language::error::LanguageFault;
use crate::language::landmark::{SourcePosition, index};
use crate::language::limits::{NESTING_MAX, PARAMETERS_MAX};
use crate::language::token::{LanguageToken, LanguageTokenKind, Symbol};
use std::sync::Arc;

impl LanguageParser<'_> {
    /// Parses `elementclass NAME CLASS` and `elementclass NAME { … }` after the keyword.
    pub(super) fn element_class(&mut self) -> Parsed {
        let token = self.next();
        if token.kind != LanguageTokenKind::Identifier {
            self.error(self.scanner.position(token), LanguageFault::ExpectedClassName);
            self.scanner.put_back(token);
            return Err(SkipStatement);
        }
        let name = self.intern(token);
        let token = self.next();
        let class = if token.is(Symbol::OpenBrace) {
            self.compound(Some(name), token)?
        } else if token.kind == LanguageTokenKind::Identifier {
            self.force_class(token)
        } else {
            return Err(self.syntax_error(token));
        };
        self.set_class(name, class);
        Ok(())
    }

    /// Parses the definitions of a compound element, whose brace was read. Returns their class.
    pub(super) fn compound(&mut self, name: Option<NameId>, open: LanguageToken) -> Parsed<ClassId> {
        let position = self.scanner.position(open);
        if self.nesting >= NESTING_MAX {
            self.abort(position, "nested braces and groups", NESTING_MAX);
            return Err(SkipStatement);
        }
        self.nesting += 1;
        let parsed = self.definitions(name, position);
        self.nesting -= 1;
        let (definitions, mut overload) = parsed?;
        for body in definitions.into_iter().rev() {
            self.classes.push(ClassDefinition::Compound { body, overload });
            overload = Some(self.classes.len() - 1);
        }
        overload.ok_or(SkipStatement)
    }

    /// Parses the definitions between `||`, up to the brace. Returns their bodies, and the class of `...`.
    fn definitions(
        &mut self,
        name: Option<NameId>,
        open: SourcePosition,
    ) -> Parsed<(Vec<BodyId>, Option<ClassId>)> {
        let mut bodies = Vec::new();
        loop {
            let token = self.next();
            if token.is(Symbol::Ellipsis) {
                let extended = self.extended_class(name, token);
                let is_last = self.accept(Symbol::CloseBrace);
                if !is_last || bodies.is_empty() {
                    self.error(self.scanner.position(token), LanguageFault::EllipsisNotLast);
                }
                if !is_last {
                    return Err(SkipStatement);
                }
                return Ok((bodies, extended));
            }
            self.scanner.put_back(token);
            // The first definition is named after its brace, as errors are.
            let position = if bodies.is_empty() { open } else { self.scanner.position(token) };
            let (body, close) = self.definition(name, position);
            bodies.push(body);
            if close.is(Symbol::CloseBrace) {
                return Ok((bodies, None));
            }
            if !close.is(Symbol::DoubleBar) {
                self.error(open, LanguageFault::expected(Symbol::CloseBrace));
                self.scanner.put_back(close);
                return Err(SkipStatement);
            }
        }
    }

    fn extended_class(&mut self, name: Option<NameId>, token: LanguageToken) -> Option<ClassId> {
        let position = self.scanner.position(token);
        let Some(name) = name else {
            self.error(position, LanguageFault::ExtendAnonymous);
            return None;
        };
        let class = self.find_class(name, true);
        if class.is_none() {
            let text = self.names.get(name).to_string();
            self.error(position, LanguageFault::ExtendUnknown(text));
        }
        class
    }

    /// Parses one definition into a new body. Returns the token that ends it.
    fn definition(&mut self, class: Option<NameId>, position: SourcePosition) -> (BodyId, LanguageToken) {
        let outer = self.body;
        let mut body = Body::new(self.bodies[outer].depth + 1, class, position);
        for (name, kind) in [("input", NodeKind::Input), ("output", NodeKind::Output)] {
            let name = BodyNodeName::Named(self.names.intern(name));
            body.add_node(BodyNode { kind, name, configuration: "".into(), position });
        }
        self.bodies.push(body);
        self.body = self.bodies.len() - 1;
        let scope = self.scope_changes.len();

        self.parameters();
        let close = self.statements(Enclosure::Compound);
        self.finish_body(self.body);

        for (name, previous) in self.scope_changes.drain(scope..).rev() {
            match previous {
                Some(class) => self.scope.insert(name, class),
                None => self.scope.remove(&name),
            };
        }
        (std::mem::replace(&mut self.body, outer), close)
    }

    /// Parses `$a, KEYWORD $b |`, if the body begins with it.
    fn parameters(&mut self) {
        let mut is_first = true;
        loop {
            let token = self.next();
            let (keyword, variable) = match token.kind {
                LanguageTokenKind::Variable => (None, token),
                LanguageTokenKind::Identifier => {
                    let second = self.next();
                    if second.kind != LanguageTokenKind::Variable {
                        self.scanner.put_back(second);
                        self.end_parameters(token, is_first);
                        return;
                    }
                    (Some(token), second)
                }
                LanguageTokenKind::Symbol(Symbol::Bar) if is_first => return,
                _ => {
                    self.end_parameters(token, is_first);
                    return;
                }
            };
            is_first = false;
            let keyword = keyword.map(|token| self.scanner.text(token).into());
            self.add_parameter(keyword, variable);
            let separator = self.next();
            if separator.is(Symbol::Bar) {
                return;
            }
            if !separator.is(Symbol::Comma) {
                self.error(self.scanner.position(separator), LanguageFault::ExpectedParameterEnd);
                self.scanner.put_back(separator);
                return;
            }
        }
    }

    fn end_parameters(&mut self, token: LanguageToken, is_first: bool) {
        if !is_first {
            self.error(self.scanner.position(token), LanguageFault::ExpectedVariable);
        }
        self.scanner.put_back(token);
    }

    fn add_parameter(&mut self, keyword: Option<Arc<str>>, variable: LanguageToken) {
        let position = self.scanner.position(variable);
        let name = self.names.intern(&self.scanner.text(variable)[1..]);
        if !self.add_variable(name, None, position) {
            return;
        }
        if self.bodies[self.body].parameters.len() >= PARAMETERS_MAX {
            return self.abort(position, "parameters of a compound element", PARAMETERS_MAX);
        }
        let parameters = &mut self.bodies[self.body].parameters;
        let repeated = keyword.is_some() && parameters.contains(&keyword);
        let is_misplaced = parameters
            .last()
            .is_some_and(|last| last.as_deref() == Some(REST) || (keyword.is_none() && last.is_some()));
        parameters.push(keyword.clone());
        if repeated {
            let keyword = keyword.unwrap_or_else(|| "".into()).to_string();
            self.error(position, LanguageFault::KeywordTwice(keyword));
        }
        if is_misplaced {
            self.error(position, LanguageFault::ParameterOrder);
        }
    }

    /// Defines a variable of the body. Returns false if it exists; only a variable of the caller is no error then.
    pub(super) fn add_variable(
        &mut self,
        name: NameId,
        value: Option<Arc<str>>,
        position: SourcePosition,
    ) -> bool {
        let body = &mut self.bodies[self.body];
        if let Some(index) = body.variable_index.get(&name) {
            if body.variables[*index].position.is_some() {
                let text = self.names.get(name).to_string();
                self.error(position, LanguageFault::VariableTwice(text));
            }
            return false;
        }
        body.variable_index.insert(name, body.variables.len());
        body.variables.push(BodyVariable { name, value, position: Some(position) });
        true
    }

    /// Completes a body: checks `input` and `output`, names the anonymous elements, and notes the ports of compounds.
    pub(super) fn finish_body(&mut self, id: BodyId) {
        if id != super::FILE_BODY {
            let body = &self.bodies[id];
            let name = body.class.map_or("<anonymous>".into(), |class| Arc::clone(self.names.get(class)));
            let position = body.position;
            let counts = self.check_pseudo_elements(&name, (0, 1), 0, position);
            let body = &mut self.bodies[id];
            (body.inputs, body.outputs) = counts;
        }
        let body = &mut self.bodies[id];
        body.name_anonymous(&mut self.names);
        let is_compound = |node: usize, classes: &[ClassDefinition]| match body.nodes[node].kind {
            NodeKind::Element(class) => matches!(classes[class], ClassDefinition::Compound { .. }),
            _ => false,
        };
        for connection in &body.connections {
            let ((from, output), (to, input)) = (connection.from, connection.to);
            if is_compound(from, &self.classes) {
                body.used.entry(from).or_default().outputs.push(output);
            }
            if is_compound(to, &self.classes) {
                body.used.entry(to).or_default().inputs.push(input);
            }
        }
        for used in body.used.values_mut() {
            for ports in [&mut used.inputs, &mut used.outputs] {
                ports.sort_unstable();
                ports.dedup();
            }
        }
    }

    /// Checks that `input` is only a source, `output` only a destination, and that no port of them is left out. Returns
    /// the numbers of their ports.
    pub(super) fn check_pseudo_elements(
        &mut self,
        element: &str,
        (input, output): (usize, usize),
        first_connection: usize,
        position: SourcePosition,
    ) -> (u32, u32) {
        let (mut inputs, mut outputs, mut misused) = (Vec::new(), Vec::new(), [None, None]);
        for connection in &self.bodies[self.body].connections[first_connection..] {
            match connection.from {
                (node, port) if node == input => inputs.push(port),
                (node, _) if node == output => misused[1] = Some(connection.position),
                _ => {}
            }
            match connection.to {
                (node, port) if node == output => outputs.push(port),
                (node, _) if node == input => misused[0] = Some(connection.position),
                _ => {}
            }
        }
        for (is_output, place) in [false, true].into_iter().zip(misused) {
            if let Some(place) = place {
                self.error(place, LanguageFault::PseudoElementUse { element: element.to_owned(), is_output });
            }
        }
        let count = |mut ports: Vec<u32>| {
            ports.sort_unstable();
            ports.dedup();
            let missing = (0..).zip(&ports).find(|(index, port)| index != *port).map(|(index, _)| index);
            // Without gaps, the number of ports is one more than the last. With gaps, it has no bound but the highest port.
            (index(ports.len()), missing)
        };
        let (inputs, missing_input) = count(inputs);
        let (outputs, missing_output) = count(outputs);
        for (is_output, missing) in [(false, missing_input), (true, missing_output)] {
            if let Some(port) = missing {
                let fault = LanguageFault::PortMissing { element: element.to_owned(), is_output, port };
                self.error(position, fault);
            }
        }
        (inputs, outputs)
    }
}
