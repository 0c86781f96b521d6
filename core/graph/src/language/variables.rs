//! Substitution of variables in configuration strings.
//!
//! The value of a variable is expanded once, in the scope in which the text writes it, when it is first used. Expanded
//! values are not searched for variables again.

use super::body::{BodyId, NameId};
use super::error::LanguageFault;
use super::flatten::{Expanded, Flattener};
use super::landmark::SourcePosition;
use super::limits::VARIABLE_DEPTH_MAX;
use super::scanner::configuration_comments;
use super::token::is_variable_byte;
use crate::arguments::text::{TextUnit, quote, split_words, unit_at};
use std::sync::Arc;

/// The variables of one instance of a body.
pub(crate) struct VariableFrame {
    /// The frame of the scope around the body.
    pub parent: Option<usize>,
    /// The depth of the body.
    pub depth: usize,
    pub body: BodyId,
    pub values: Vec<VariableValue>,
}

#[derive(Clone)]
pub(crate) enum VariableValue {
    /// The text of `define`.
    Written(Arc<str>),
    /// The value is being expanded.
    Pending,
    Expanded(Arc<str>),
}

/// A reference to a variable: `$name`, `${name[index]-default}` or `$(name)`.
struct VariableReference<'t> {
    name: &'t str,
    index: Option<usize>,
    default: Option<&'t str>,
}

impl Flattener<'_> {
    /// Returns a configuration with its variables replaced.
    pub fn expand_configuration(
        &mut self,
        text: &Arc<str>,
        frame: usize,
        position: SourcePosition,
    ) -> Expanded<Arc<str>> {
        let Some(expanded) = self.expand(text, Some(frame), position)? else { return Ok(Arc::clone(text)) };
        // Otherwise the text of the flat configuration would be read differently.
        let comments = configuration_comments(&expanded);
        let is_same = comments.is_some() && comments == configuration_comments(text);
        if !is_same || self.expand(&expanded, None, position)?.is_some() {
            let shown: String = text.chars().take(80).collect();
            self.error(position, LanguageFault::BrokenSubstitution(shown));
        }
        Ok(expanded.into())
    }

    /// Replaces variables. Returns `None` if there is none to replace. Without a frame, no variable is defined.
    fn expand(
        &mut self,
        text: &str,
        frame: Option<usize>,
        position: SourcePosition,
    ) -> Expanded<Option<String>> {
        let bytes = text.as_bytes();
        if !bytes.contains(&b'$') {
            return Ok(None);
        }
        let mut out: Option<String> = None;
        let braces = matching_braces(bytes);
        let (mut copied, mut at) = (0, 0);
        // Quotes inside `\<…>` are no quotes.
        let (mut in_double, mut data_end) = (false, 0);
        while at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'\\', Some(b'<')) if at >= data_end => {
                    data_end = unit_at(bytes, at).1;
                    at += 2;
                }
                (b'\\', Some(_)) if in_double && at >= data_end => at += 2,
                (b'"', _) if at >= data_end => {
                    in_double = !in_double;
                    at += 1;
                }
                // Quotes inside a comment are no quotes either.
                (b'/' | b'#', _) if !in_double && at >= data_end => {
                    let (unit, end, _) = unit_at(bytes, at);
                    at = if unit == TextUnit::Comment { end } else { at + 1 };
                }
                (b'\'', _) if !in_double && at >= data_end => {
                    let (unit, end, _) = unit_at(bytes, at);
                    debug_assert_eq!(unit, TextUnit::Single);
                    at = end;
                }
                (b'$', _) => {
                    let end = reference_end(bytes, at, &braces);
                    let Some(value) = self.value_of(&text[at..end], frame, position)? else {
                        // A variable inside the parentheses may be defined.
                        at = if bytes[at..].starts_with(b"$(") { at + 2 } else { end };
                        continue;
                    };
                    let quoted = if in_double { Some(quote(value.as_bytes())) } else { None };
                    let value = quoted.as_deref().map_or(&*value, |quoted| &quoted[1..quoted.len() - 1]);
                    let out = out.get_or_insert_default();
                    self.charge_text((at - copied) + value.len(), position)?;
                    out.push_str(&text[copied..at]);
                    out.push_str(value);
                    (copied, at) = (end, end);
                }
                _ => at += 1,
            }
        }
        if let Some(out) = &mut out {
            out.push_str(&text[copied..]);
        }
        Ok(out)
    }

    /// Returns the value of a reference, or its default, or `None` if it has neither.
    fn value_of(
        &mut self,
        text: &str,
        frame: Option<usize>,
        position: SourcePosition,
    ) -> Expanded<Option<Arc<str>>> {
        self.deepen(position)?;
        let inner = text.strip_prefix("${").and_then(|inner| inner.strip_suffix('}'));
        // A name can itself be made of variables.
        let made = match inner {
            Some(inner) if inner.trim_start().starts_with('$') => self.expand(inner, frame, position)?,
            _ => None,
        };
        let reference = match inner {
            Some(inner) => in_braces(made.as_deref().unwrap_or(inner)),
            None => {
                let name = text[1..].trim_start_matches('(').trim_end_matches(')');
                VariableReference { name, index: None, default: None }
            }
        };
        let found = match (frame, self.parser.names.find(reference.name)) {
            (Some(frame), Some(name)) => self.find_variable(frame, name),
            _ => None,
        };
        let value = match (found, reference.default) {
            (Some((frame, slot)), _) => {
                let value = self.variable(frame, slot, position)?;
                Some(match reference.index {
                    Some(index) => {
                        // The words are searched from the begin for each reference.
                        self.charge_text(value.len(), position)?;
                        split_words(&value).nth(index).unwrap_or_default().into()
                    }
                    None => value,
                })
            }
            (None, Some(default)) => {
                let expanded = self.expand(default, frame, position)?;
                Some(expanded.as_deref().unwrap_or(default).into())
            }
            (None, None) => None,
        };
        self.variable_depth -= 1;
        Ok(value)
    }

    /// Counts one more level of values that are being expanded.
    fn deepen(&mut self, position: SourcePosition) -> Expanded {
        if self.variable_depth >= VARIABLE_DEPTH_MAX {
            return Err(self.stop(position, "nested variables", VARIABLE_DEPTH_MAX));
        }
        self.variable_depth += 1;
        Ok(())
    }

    /// Returns the frame and the index of a variable that is visible in a frame.
    fn find_variable(&self, frame: usize, name: NameId) -> Option<(usize, usize)> {
        let mut next = Some(frame);
        while let Some(index) = next {
            let frame = &self.frames[index];
            if let Some(slot) = self.parser.bodies[frame.body].variable_index.get(&name) {
                return Some((index, *slot));
            }
            next = frame.parent;
        }
        None
    }

    fn variable(&mut self, frame: usize, slot: usize, position: SourcePosition) -> Expanded<Arc<str>> {
        let value = std::mem::replace(&mut self.frames[frame].values[slot], VariableValue::Pending);
        let value = match value {
            VariableValue::Expanded(value) => value,
            VariableValue::Written(text) => match self.expand(&text, Some(frame), position)? {
                Some(expanded) => expanded.into(),
                None => text,
            },
            VariableValue::Pending => {
                let variable = &self.parser.bodies[self.frames[frame].body].variables[slot];
                let name = self.parser.names.get(variable.name).to_string();
                let position = variable.position.unwrap_or(position);
                self.error(position, LanguageFault::VariableInItself(name));
                "".into()
            }
        };
        self.frames[frame].values[slot] = VariableValue::Expanded(Arc::clone(&value));
        Ok(value)
    }
}

/// Returns the index of each `${` that is closed, and the end of its brace, in order. A brace closes the last `${` that
/// is open.
fn matching_braces(text: &[u8]) -> Vec<(usize, usize)> {
    let (mut open, mut matching) = (Vec::new(), Vec::new());
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'{' if at > 0 && text[at - 1] == b'$' => open.push(at - 1),
            b'}' => matching.extend(open.pop().map(|start| (start, at + 1))),
            _ => {}
        }
    }
    matching.sort_unstable();
    matching
}

/// Returns the end of the reference that begins with the `$` at `at`. A `$` that begins no reference ends after itself.
fn reference_end(text: &[u8], at: usize, braces: &[(usize, usize)]) -> usize {
    match text.get(at + 1) {
        Some(b'{') => match braces.binary_search_by_key(&at, |(start, _)| *start) {
            Ok(found) => braces[found].1,
            Err(_) => at + 1,
        },
        Some(b'(') => {
            let len = text[at + 2..].iter().take_while(|byte| is_variable_byte(**byte)).count();
            if text.get(at + 2 + len) == Some(&b')') { at + 3 + len } else { at + 1 }
        }
        _ => at + 1 + text[at + 1..].iter().take_while(|byte| is_variable_byte(**byte)).count(),
    }
}

/// Parses the text of a reference between braces: `name`, `name[1]`, `name-default`.
fn in_braces(text: &str) -> VariableReference<'_> {
    let text = text.trim_start();
    let len = text.bytes().take_while(|byte| is_variable_byte(*byte)).count();
    let (name, rest) = text.split_at(len);
    let mut rest = rest.trim_start();
    let mut index = None;
    if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        index = inside.trim().parse().ok();
        if index.is_some() {
            rest = after.trim_start();
        }
    }
    VariableReference { name, index, default: rest.strip_prefix('-') }
}
