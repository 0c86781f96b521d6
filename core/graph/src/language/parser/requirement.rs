//! The statements `require`, `define` and `provide`.

use super::{FILE_BODY, LanguageParser, Parsed, SkipStatement};
use crate::arguments::text::{shift_word, split_arguments, split_words, unquote};
use crate::language::error::LanguageFault;
use crate::language::landmark::SourcePosition;
use crate::language::limits::LIBRARIES_MAX;
use crate::language::token::{LanguageToken, Symbol, is_variable_name};
use crate::language::{ConfigurationSource, Requirement};
use std::sync::Arc;

impl LanguageParser<'_> {
    /// Reads the configuration string of a keyword, with its parentheses.
    fn parenthesised(&mut self) -> Parsed<(Arc<str>, SourcePosition)> {
        let token = self.next();
        if !token.is(Symbol::OpenParenthesis) {
            self.error(self.scanner.position(token), LanguageFault::expected(Symbol::OpenParenthesis));
            self.scanner.put_back(token);
            return Err(SkipStatement);
        }
        let position = self.scanner.position(token);
        Ok((self.configuration(token)?, position))
    }

    pub(super) fn require(&mut self) -> Parsed {
        let (text, position) = self.parenthesised()?;
        self.accept(Symbol::Semicolon);
        for argument in split_arguments(&text) {
            let words: Vec<&str> = split_words(&argument).collect();
            match words[..] {
                [] => {}
                ["compact_config"] => self.requirements.push(Requirement::CompactConfiguration),
                ["library", name] => self.library(&plain(name), position),
                ["package", name] => self.requirements.push(Requirement::Package(plain(name))),
                [name] if !matches!(name, "package" | "library") => {
                    self.requirements.push(Requirement::Package(plain(name)));
                }
                _ => self.error(position, LanguageFault::Requirement),
            }
        }
        Ok(())
    }

    /// Parses the file of a library, unless it was parsed before.
    fn library(&mut self, name: &str, position: SourcePosition) {
        if self.body != FILE_BODY {
            return self.error(position, LanguageFault::LibraryScope);
        }
        let from = self.sources[position.file as usize].landmark(position.at).file;
        let library = match self.environment.library(name, &from) {
            Ok(library) => library,
            Err(reason) => {
                return self.error(position, LanguageFault::Library { name: name.to_owned(), reason });
            }
        };
        if !self.libraries.insert(library.path.clone()) {
            return;
        }
        if self.libraries.len() > LIBRARIES_MAX {
            return self.abort(position, "library files", LIBRARIES_MAX);
        }
        self.parse_file(&ConfigurationSource { name: &library.path, bytes: &library.bytes });
    }

    pub(super) fn define(&mut self) -> Parsed {
        let (text, position) = self.parenthesised()?;
        for argument in split_arguments(&text) {
            if argument.is_empty() {
                continue;
            }
            let (variable, value) = shift_word(&argument);
            let name = variable.strip_prefix('$').filter(|name| is_variable_name(name));
            match name {
                Some(name) => {
                    let name = self.names.intern(name);
                    self.add_variable(name, Some(value.into()), position);
                }
                None => self.error(position, LanguageFault::NotAVariable),
            }
        }
        Ok(())
    }

    pub(super) fn provide(&mut self, keyword: LanguageToken) -> Parsed {
        let position = self.scanner.position(keyword);
        self.parenthesised()?;
        self.warn(position, LanguageFault::Provide);
        Ok(())
    }
}

fn plain(word: &str) -> String {
    String::from_utf8_lossy(&unquote(word)).into_owned()
}
