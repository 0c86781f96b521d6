//! The parser: it turns the text of a configuration and of its libraries into bodies.
//!
//! Each statement is parsed by recursive descent. A faulty statement is reported and skipped up to its semicolon.

mod compound;
mod connect;
mod connection;
mod element;
mod requirement;

use super::ConfigurationSource;
use super::body::{
    Body, BodyId, BodyNodeName, BodyVariable, ClassDefinition, ClassId, NameId, NameMap, NameTable, NodeKind,
};
use super::environment::{ClassStatus, LanguageEnvironment};
use super::error::{LanguageError, LanguageErrors, LanguageFault, LanguageNote};
use super::landmark::{SourceFile, SourcePosition};
use super::limits;
use super::scanner::TokenScanner;
use super::token::{Keyword, LanguageToken, LanguageTokenKind, Symbol};
use super::{Requirement, limits::SOURCE_BYTES_MAX};
use crate::nearest::nearest;
use std::collections::HashSet;
use std::sync::Arc;

/// The statement at hand cannot be parsed further. The error has been reported.
pub(crate) struct SkipStatement;

/// The result of parsing a part of a statement.
type Parsed<T = ()> = Result<T, SkipStatement>;

/// The text around a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enclosure {
    File,
    Compound,
    Group,
}

/// The parser, and all that it has read.
pub(crate) struct LanguageParser<'e> {
    pub environment: &'e dyn LanguageEnvironment,
    pub sources: Vec<SourceFile>,
    pub names: NameTable,
    pub bodies: Vec<Body>,
    pub classes: Vec<ClassDefinition>,
    pub requirements: Vec<Requirement>,
    pub report: LanguageErrors,
    scanner: TokenScanner,
    /// The body of the statement at hand.
    body: BodyId,
    /// The classes that are visible at the statement at hand.
    scope: NameMap<ClassId>,
    /// The changes to `scope`, to be undone at the end of a body.
    scope_changes: Vec<(NameId, Option<ClassId>)>,
    primitives: NameMap<ClassId>,
    libraries: HashSet<String>,
    /// The number of bodies and groups around the statement at hand.
    nesting: usize,
    connections_left: usize,
    suggestions_left: usize,
    /// A limit was reached, after which no errors are reported.
    is_aborted: bool,
}

/// The body of the file.
pub(crate) const FILE_BODY: BodyId = 0;

impl<'e> LanguageParser<'e> {
    pub fn new(environment: &'e dyn LanguageEnvironment) -> Self {
        let start = SourcePosition { file: 0, at: 0 };
        Self {
            environment,
            sources: Vec::new(),
            names: NameTable::default(),
            bodies: vec![Body::new(0, None, start)],
            classes: Vec::new(),
            requirements: Vec::new(),
            report: LanguageErrors::default(),
            scanner: TokenScanner::new(0, "".into()),
            body: FILE_BODY,
            scope: NameMap::default(),
            scope_changes: Vec::new(),
            primitives: NameMap::default(),
            libraries: HashSet::new(),
            nesting: 0,
            connections_left: limits::FLAT_CONNECTIONS_MAX,
            suggestions_left: limits::SUGGESTIONS_MAX,
            is_aborted: false,
        }
    }

    /// Defines variables of the whole configuration, which `define` does not change.
    pub fn define_globals(&mut self, definitions: &[(String, String)]) {
        for (name, value) in definitions {
            let name = self.names.intern(name);
            let body = &mut self.bodies[FILE_BODY];
            body.variable_index.insert(name, body.variables.len());
            body.variables.push(BodyVariable { name, value: Some(value.as_str().into()), position: None });
        }
    }

    /// Parses a file into the body of the file.
    pub fn parse_file(&mut self, source: &ConfigurationSource<'_>) {
        let name: Arc<str> = source.name.into();
        if source.bytes.len() > SOURCE_BYTES_MAX {
            let fault = LanguageFault::Limit { what: "bytes of a file", max: SOURCE_BYTES_MAX };
            self.push_error(LanguageError::of_file(name, fault));
            return;
        }
        let text: Arc<str> = match std::str::from_utf8(source.bytes) {
            Ok(text) => text.into(),
            Err(_) => {
                let warning = LanguageError::of_file(Arc::clone(&name), LanguageFault::NotUtf8);
                self.push_warning(warning);
                // A replacement character has at most three times the bytes of what it replaces.
                String::from_utf8_lossy(source.bytes).into()
            }
        };
        let file = super::landmark::index(self.sources.len());
        self.sources.push(SourceFile::new(name, Arc::clone(&text)));
        let outer = std::mem::replace(&mut self.scanner, TokenScanner::new(file, text));
        loop {
            let end = self.statements(Enclosure::File);
            if end.kind == LanguageTokenKind::End {
                break;
            }
        }
        self.scanner = outer;
        if self.is_aborted {
            self.scanner.skip_all();
        }
    }

    /// Completes the body of the file.
    pub fn finish(&mut self) {
        self.finish_body(FILE_BODY);
    }

    /// Parses statements up to the token that ends their enclosure, which is returned.
    fn statements(&mut self, enclosure: Enclosure) -> LanguageToken {
        loop {
            let token = self.next();
            let parsed = match token.kind {
                LanguageTokenKind::End => return token,
                LanguageTokenKind::Symbol(Symbol::Semicolon) => continue,
                LanguageTokenKind::Symbol(Symbol::CloseBrace | Symbol::DoubleBar)
                    if enclosure == Enclosure::Compound =>
                {
                    return token;
                }
                LanguageTokenKind::Symbol(Symbol::CloseParenthesis) if enclosure == Enclosure::Group => {
                    return token;
                }
                LanguageTokenKind::Symbol(Symbol::CloseBrace | Symbol::DoubleBar)
                    if enclosure == Enclosure::Group =>
                {
                    // The group lacks its parenthesis; the token ends the text around the group.
                    self.scanner.put_back(token);
                    return token;
                }
                LanguageTokenKind::Symbol(
                    Symbol::CloseBrace | Symbol::CloseParenthesis | Symbol::DoubleBar,
                ) => {
                    self.syntax_error(token);
                    // The token would end the skipping of a statement.
                    self.next();
                    continue;
                }
                LanguageTokenKind::Identifier
                | LanguageTokenKind::Symbol(
                    Symbol::OpenBracket
                    | Symbol::OpenBrace
                    | Symbol::OpenParenthesis
                    | Symbol::Arrow
                    | Symbol::DoubleArrow,
                ) => {
                    self.scanner.put_back(token);
                    self.connection(enclosure != Enclosure::File)
                }
                LanguageTokenKind::Keyword(Keyword::ElementClass) => self.element_class(),
                LanguageTokenKind::Keyword(Keyword::Require) => self.require(),
                LanguageTokenKind::Keyword(Keyword::Define) => self.define(),
                LanguageTokenKind::Keyword(Keyword::Provide) => self.provide(token),
                _ => Err(self.syntax_error(token)),
            };
            if parsed.is_err() {
                self.skip_statement();
            }
        }
    }

    fn skip_statement(&mut self) {
        self.scanner.skip_statement(&mut self.sources[self.scanner.file as usize]);
        self.report_scanner_faults();
    }

    fn next(&mut self) -> LanguageToken {
        let token = self.scanner.next(&mut self.sources[self.scanner.file as usize]);
        self.report_scanner_faults();
        token
    }

    /// Reads the next token if it is this symbol.
    fn accept(&mut self, symbol: Symbol) -> bool {
        let token = self.next();
        if !token.is(symbol) {
            self.scanner.put_back(token);
        }
        token.is(symbol)
    }

    /// Reads a configuration string and its closing parenthesis; the opening one was read.
    fn configuration(&mut self, open: LanguageToken) -> Parsed<Arc<str>> {
        let (range, closed) = self.scanner.configuration(&mut self.sources[self.scanner.file as usize]);
        // An open quote is the reason for which the parenthesis is missing.
        if !closed && self.scanner.faults.is_empty() {
            self.error(self.scanner.position(open), LanguageFault::expected(Symbol::CloseParenthesis));
        }
        self.report_scanner_faults();
        if !closed {
            return Err(SkipStatement);
        }
        Ok(self.sources[self.scanner.file as usize].text[range].into())
    }

    fn intern(&mut self, token: LanguageToken) -> NameId {
        self.names.intern(self.scanner.text(token))
    }

    /// Reports a token that cannot stand at its place, and puts it back.
    fn syntax_error(&mut self, token: LanguageToken) -> SkipStatement {
        let fault = match token.kind {
            LanguageTokenKind::End => LanguageFault::SyntaxAtEnd,
            _ => LanguageFault::Syntax(self.scanner.text(token).to_owned()),
        };
        self.error(self.scanner.position(token), fault);
        self.scanner.put_back(token);
        SkipStatement
    }

    fn report_scanner_faults(&mut self) {
        for (position, fault) in std::mem::take(&mut self.scanner.faults) {
            self.error(position, fault);
        }
    }

    /// Reports a limit, and ends the parsing.
    fn abort(&mut self, position: SourcePosition, what: &'static str, max: usize) {
        self.error(position, LanguageFault::Limit { what, max });
        self.is_aborted = true;
        self.scanner.skip_all();
    }

    pub fn error(&mut self, position: SourcePosition, fault: LanguageFault) {
        self.error_with(position, fault, None, Vec::new());
    }

    pub fn error_with(
        &mut self,
        position: SourcePosition,
        fault: LanguageFault,
        nearest: Option<String>,
        notes: Vec<LanguageNote>,
    ) {
        if self.is_aborted {
            return;
        }
        // Finding a place takes time proportional to its line.
        if self.report.errors.len() >= limits::ERRORS_MAX {
            self.report.uncollected += 1;
            return;
        }
        let place = self.sources[position.file as usize].place(position.at);
        self.push_error(LanguageError { nearest, notes, ..LanguageError::new(place, fault) });
    }

    pub fn push_error(&mut self, error: LanguageError) {
        if self.report.errors.len() < limits::ERRORS_MAX {
            self.report.errors.push(error);
        } else {
            self.report.uncollected += 1;
        }
    }

    fn push_warning(&mut self, warning: LanguageError) {
        if self.report.warnings.len() < limits::ERRORS_MAX {
            self.report.warnings.push(warning);
        }
    }

    fn warn(&mut self, position: SourcePosition, fault: LanguageFault) {
        if self.report.warnings.len() >= limits::ERRORS_MAX {
            return;
        }
        let place = self.sources[position.file as usize].place(position.at);
        self.push_warning(LanguageError::new(place, fault));
    }

    /// Returns a note that an element is declared at a position.
    fn declared_at(&self, position: SourcePosition, name: NameId) -> Vec<LanguageNote> {
        let landmark = self.sources[position.file as usize].landmark(position.at);
        vec![LanguageNote {
            landmark,
            text: format!("element '{}' previously declared here", self.names.get(name)),
        }]
    }

    /// Returns the class that a name means, if it means one. `is_class` says that a possible class counts.
    fn find_class(&mut self, name: NameId, is_class: bool) -> Option<ClassId> {
        if let Some(class) = self.scope.get(&name) {
            return Some(*class);
        }
        match self.environment.class(self.names.get(name)) {
            ClassStatus::Known => {}
            ClassStatus::Possible if is_class => {}
            _ => return None,
        }
        Some(self.add_primitive(name))
    }

    /// Returns the class after `::`, or reports that there is none.
    fn force_class(&mut self, token: LanguageToken) -> ClassId {
        let name = self.intern(token);
        if let Some(class) = self.find_class(name, true) {
            return class;
        }
        let text = Arc::clone(self.names.get(name));
        let nearest = self.suggest(&text, |parser| parser.class_candidates());
        let fault = LanguageFault::UnknownClass(text.to_string());
        self.error_with(self.scanner.position(token), fault, nearest, Vec::new());
        // Further uses are no further errors.
        self.add_primitive(name)
    }

    fn add_primitive(&mut self, name: NameId) -> ClassId {
        let class = *self.primitives.entry(name).or_insert_with(|| {
            self.classes.push(ClassDefinition::Primitive(name));
            self.classes.len() - 1
        });
        self.set_class(name, class);
        class
    }

    /// Makes a class visible up to the end of the body.
    fn set_class(&mut self, name: NameId, class: ClassId) {
        let previous = self.scope.insert(name, class);
        self.scope_changes.push((name, previous));
    }

    fn class_candidates(&self) -> Vec<String> {
        let declared = self.scope.keys().map(|name| self.names.get(*name).to_string());
        self.environment.class_names().into_iter().map(str::to_owned).chain(declared).collect()
    }

    /// Returns the nearest of the candidates, for the first errors only.
    fn suggest(&mut self, name: &str, candidates: impl Fn(&Self) -> Vec<String>) -> Option<String> {
        self.suggestions_left = self.suggestions_left.checked_sub(1)?;
        let candidates = candidates(self);
        nearest(name, candidates.iter().map(String::as_str))
    }

    /// Adds an element and checks its name.
    fn add_element(
        &mut self,
        name: BodyNodeName,
        kind: NodeKind,
        configuration: Arc<str>,
        position: SourcePosition,
    ) -> usize {
        if let BodyNodeName::Named(name) = name {
            let text = self.names.get(name);
            let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            if text.split('/').any(all_digits) {
                let fault = LanguageFault::DigitName(text.to_string());
                self.error(position, fault);
            }
        }
        let node = super::body::BodyNode { kind, name, configuration, position };
        self.bodies[self.body].add_node(node)
    }
}
