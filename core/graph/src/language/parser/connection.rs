//! Connections: lists of elements between arrows.

use super::{LanguageParser, Parsed};
use crate::language::error::LanguageFault;
use crate::language::landmark::SourcePosition;
use crate::language::limits::PORT_MAX;
use crate::language::token::{LanguageToken, LanguageTokenKind, Symbol};

/// The ports between brackets.
#[derive(Clone, Debug, Default)]
pub(super) struct PortList {
    pub ports: Vec<u32>,
    /// True for a list that continues with as many ports as the connection needs.
    pub is_open: bool,
    /// False for the ports that a group has without brackets.
    pub is_written: bool,
}

/// An element of a connection, with the ports that the text gives.
pub(super) struct ConnectedNode {
    pub node: usize,
    pub inputs: PortList,
    pub outputs: PortList,
    pub position: SourcePosition,
}

impl LanguageParser<'_> {
    /// Parses declarations and connections up to the end of the statement.
    pub(super) fn connection(&mut self, is_nested: bool) -> Parsed {
        let mut last: Option<(Vec<ConnectedNode>, LanguageToken)> = None;
        loop {
            let nodes = self.element_list(last.is_none(), is_nested)?;
            match &last {
                Some((outputs, arrow)) => self.connect_all(outputs, &nodes, *arrow)?,
                None => self.refuse_ports(&nodes, |node| &node.inputs, LanguageFault::InputPortsAtStart),
            }
            let token = self.next();
            match token.kind {
                LanguageTokenKind::Symbol(Symbol::Arrow | Symbol::DoubleArrow) => {
                    last = Some((nodes, token));
                    continue;
                }
                LanguageTokenKind::Symbol(Symbol::Semicolon) => {}
                LanguageTokenKind::Identifier
                | LanguageTokenKind::Keyword(_)
                | LanguageTokenKind::End
                | LanguageTokenKind::Symbol(
                    Symbol::OpenBrace
                    | Symbol::CloseBrace
                    | Symbol::OpenBracket
                    | Symbol::CloseParenthesis
                    | Symbol::DoubleBar,
                ) => self.scanner.put_back(token),
                _ => return Err(self.syntax_error(token)),
            }
            self.refuse_ports(&nodes, |node| &node.outputs, LanguageFault::OutputPortsAtEnd);
            return Ok(());
        }
    }

    /// Reports ports on the side of a chain that has no connection.
    fn refuse_ports(
        &mut self,
        nodes: &[ConnectedNode],
        side: impl Fn(&ConnectedNode) -> &PortList,
        fault: LanguageFault,
    ) {
        if let Some(node) = nodes.iter().find(|node| side(node).is_written) {
            self.error(node.position, fault);
        }
    }

    /// Parses the ports between brackets, if there are any.
    pub(super) fn ports(&mut self) -> Parsed<PortList> {
        let mut list = PortList::default();
        if !self.accept(Symbol::OpenBracket) {
            return Ok(list);
        }
        list.is_written = true;
        let mut after_dash = false;
        loop {
            let token = self.next();
            if token.is(Symbol::CloseBracket) {
                if list.ports.is_empty() {
                    list.ports.push(0);
                }
                list.is_open = true;
                return Ok(list);
            }
            let port = self.port_number(token)?;
            let first = match list.ports.last() {
                Some(last) if after_dash => last + 1,
                _ => port,
            };
            let count = (port + 1).saturating_sub(first) as usize;
            self.count_connections(count, self.scanner.position(token))?;
            list.ports.extend(first..=port);
            let token = self.next();
            match token.kind {
                LanguageTokenKind::Symbol(Symbol::CloseBracket) => return Ok(list),
                LanguageTokenKind::Symbol(Symbol::Dash) if !after_dash => after_dash = true,
                LanguageTokenKind::Symbol(Symbol::Comma) => after_dash = false,
                _ => {
                    self.error(self.scanner.position(token), LanguageFault::expected(Symbol::Comma));
                    self.scanner.put_back(token);
                    return Err(super::SkipStatement);
                }
            }
        }
    }

    fn port_number(&mut self, token: LanguageToken) -> Parsed<u32> {
        let text = self.scanner.text(token);
        let fault = if token.kind != LanguageTokenKind::Identifier {
            LanguageFault::ExpectedPort
        } else {
            match crate::arguments::parse_unsigned(text) {
                Some(port) if port <= u128::from(PORT_MAX) => {
                    return Ok(u32::try_from(port).unwrap_or(PORT_MAX));
                }
                Some(_) => LanguageFault::PortTooHigh(text.to_owned()),
                None => LanguageFault::PortNotANumber,
            }
        };
        self.error(self.scanner.position(token), fault);
        self.scanner.put_back(token);
        Err(super::SkipStatement)
    }

    /// Charges connections or ports to the limit on them.
    pub(super) fn count_connections(&mut self, count: usize, position: SourcePosition) -> Parsed {
        match self.connections_left.checked_sub(count) {
            Some(left) => {
                self.connections_left = left;
                Ok(())
            }
            None => {
                let max = crate::language::limits::FLAT_CONNECTIONS_MAX;
                self.abort(position, "ports and connections", max);
                Err(super::SkipStatement)
            }
        }
    }
}
