//! The scanner: it splits the text of a file into tokens and configuration strings.

use super::error::LanguageFault;
use super::landmark::{SourceFile, SourcePosition, index};
use super::token::{
    KEYWORDS, LanguageToken, LanguageTokenKind, SYMBOLS, Symbol, is_variable_byte, is_word_byte,
};
use crate::arguments::text::{TextUnit, line_end, unit_at};
use std::sync::Arc;

/// Reads the tokens of one file. Tokens can be put back.
pub(crate) struct TokenScanner {
    /// The file's index among the source files.
    pub file: u32,
    text: Arc<str>,
    at: usize,
    put_back: Vec<LanguageToken>,
    /// Faults of the text itself, such as an open comment.
    pub faults: Vec<(SourcePosition, LanguageFault)>,
    /// The end of the last token that was read.
    pub last_end: usize,
}

impl TokenScanner {
    pub fn new(file: u32, text: Arc<str>) -> Self {
        Self { file, text, at: 0, put_back: Vec::new(), faults: Vec::new(), last_end: 0 }
    }

    pub fn text(&self, token: LanguageToken) -> &str {
        &self.text[token.start..token.end]
    }

    pub fn position(&self, token: LanguageToken) -> SourcePosition {
        self.position_at(token.start)
    }

    pub fn position_at(&self, at: usize) -> SourcePosition {
        SourcePosition { file: self.file, at: index(at) }
    }

    pub fn put_back(&mut self, token: LanguageToken) {
        self.put_back.push(token);
    }

    /// Skips the rest of the file.
    pub fn skip_all(&mut self) {
        self.put_back.clear();
        self.at = self.text.len();
    }

    /// Reads the next token. `source` is the scanner's file, for its line directives.
    pub fn next(&mut self, source: &mut SourceFile) -> LanguageToken {
        let token = self.put_back.pop().unwrap_or_else(|| self.scan(source));
        self.last_end = token.end;
        token
    }

    fn scan(&mut self, source: &mut SourceFile) -> LanguageToken {
        let text = Arc::clone(&self.text);
        let bytes = text.as_bytes();
        self.skip_space(bytes, source);
        let start = self.at;
        let Some(first) = bytes.get(start).copied() else {
            return LanguageToken { kind: LanguageTokenKind::End, start, end: start };
        };
        let (kind, end) = if is_word_byte(first) {
            let end = word_end(bytes, start);
            let word = &bytes[start..end];
            let keyword = KEYWORDS.iter().find(|(text, _)| text.as_bytes() == word);
            (
                keyword.map_or(LanguageTokenKind::Identifier, |(_, keyword)| {
                    LanguageTokenKind::Keyword(*keyword)
                }),
                end,
            )
        } else if first == b'$' && bytes.get(start + 1).copied().is_some_and(is_variable_byte) {
            let len = bytes[start + 1..].iter().take_while(|byte| is_variable_byte(**byte)).count();
            (LanguageTokenKind::Variable, start + 1 + len)
        } else {
            match SYMBOLS.iter().find(|(text, _)| bytes[start..].starts_with(text.as_bytes())) {
                Some((text, symbol)) => (LanguageTokenKind::Symbol(*symbol), start + text.len()),
                None => (
                    LanguageTokenKind::Unknown,
                    start + text[start..].chars().next().map_or(1, char::len_utf8),
                ),
            }
        };
        self.at = end;
        LanguageToken { kind, start, end }
    }

    fn skip_space(&mut self, bytes: &[u8], source: &mut SourceFile) {
        while self.at < bytes.len() {
            if bytes[self.at] == b'#' && (self.at == 0 || matches!(bytes[self.at - 1], b'\n' | b'\r')) {
                if !source.rename_lines(self.at) {
                    self.fault(self.at, LanguageFault::UnknownDirective);
                }
                self.at = line_end(bytes, self.at);
                continue;
            }
            let (unit, end, closed) = unit_at(bytes, self.at);
            if !matches!(unit, TextUnit::Space | TextUnit::Comment) {
                break;
            }
            if !closed {
                self.fault(self.at, LanguageFault::OpenComment);
            }
            self.at = end;
        }
    }

    fn fault(&mut self, at: usize, fault: LanguageFault) {
        self.faults.push((self.position_at(at), fault));
    }

    /// Reads a configuration string and the parenthesis that closes it. The opening parenthesis was the last token, and
    /// no token is put back. Returns the range of the string, and false if the file ends in it.
    pub fn configuration(&mut self, source: &mut SourceFile) -> (std::ops::Range<usize>, bool) {
        let text = Arc::clone(&self.text);
        let bytes = text.as_bytes();
        let start = self.at;
        let mut depth = 1_usize;
        while self.at < bytes.len() {
            let at = self.at;
            let (unit, end, closed) = unit_at(bytes, at);
            match (unit, bytes[at]) {
                (TextUnit::Plain, b'(') => depth += 1,
                (TextUnit::Plain, b')') => depth -= 1,
                (TextUnit::Comment, b'#') => {
                    source.rename_lines(at);
                }
                _ => {}
            }
            if !closed {
                self.fault(at, LanguageFault::open(unit));
            }
            self.at = end;
            if depth == 0 {
                self.last_end = end;
                return (start..at, true);
            }
        }
        self.last_end = self.at;
        (start..self.at, false)
    }

    /// Skips the rest of a faulty statement: up to its semicolon, which is read, or up to the brace, bar or parenthesis
    /// that ends the text around the statement, which is not.
    pub fn skip_statement(&mut self, source: &mut SourceFile) {
        let mut depth = 0_usize;
        loop {
            let token = self.next(source);
            match token.kind {
                LanguageTokenKind::End => return self.put_back(token),
                LanguageTokenKind::Keyword(_) if depth == 0 => return self.put_back(token),
                LanguageTokenKind::Symbol(symbol) => match symbol {
                    Symbol::Semicolon if depth == 0 => return,
                    // Quotes hide parentheses and semicolons.
                    Symbol::OpenParenthesis if self.put_back.is_empty() => {
                        self.configuration(source);
                    }
                    Symbol::OpenBrace | Symbol::OpenParenthesis => depth += 1,
                    Symbol::CloseBrace | Symbol::CloseParenthesis | Symbol::DoubleBar if depth == 0 => {
                        return self.put_back(token);
                    }
                    Symbol::CloseBrace | Symbol::CloseParenthesis => depth -= 1,
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// Returns the end of the identifier at `start`. A slash belongs to it if a letter follows.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() {
        let is_inside = is_word_byte(bytes[at])
            || (bytes[at] == b'/' && bytes.get(at + 1).copied().is_some_and(is_word_byte));
        if !is_inside {
            break;
        }
        at += 1;
    }
    at
}

/// Returns the comments of a text that is read, between parentheses, as one configuration string, and `None` for any
/// other text.
pub(crate) fn configuration_comments(text: &str) -> Option<Vec<&str>> {
    let bytes = text.as_bytes();
    let mut comments = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        let (unit, end, closed) = unit_at(bytes, at);
        match (unit, bytes[at]) {
            (TextUnit::Comment, _) => comments.push(&text[at..end]),
            (TextUnit::Plain, b'(') => depth += 1,
            (TextUnit::Plain, b')') => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if !closed {
            return None;
        }
        at = end;
    }
    (depth == 0).then_some(comments)
}
