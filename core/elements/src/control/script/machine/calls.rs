//! Texts of a script, and the calls of handlers in them.

use super::super::expand::{ScriptValues, expand};
use super::super::functions;
use super::{ScriptMachine, TEXT_MAX};
use weir_graph::arguments::text::{shift_word, split_words, unquote};
use weir_graph::engine::{ElementContext, Reason, TextOutput};

impl ScriptMachine {
    pub(super) fn print(&mut self, text: &str, unquotes: bool, ends_line: bool, cx: &mut ElementContext<'_>) {
        let (file, is_new, text) = match text.strip_prefix('>') {
            Some(rest) => {
                let (rest, is_new) = rest.strip_prefix('>').map_or((rest, true), |rest| (rest, false));
                let (name, text) = shift_word(rest);
                let name = self.expand(name, true, cx);
                ((!name.is_empty() && name != "-").then_some(name), is_new, text)
            }
            None => (None, false, text),
        };
        let is_handler = text.starts_with(|first: char| first.is_ascii_alphabetic() || "@_".contains(first));
        let value = if is_handler {
            let call = self.expand_call(text, unquotes, cx);
            self.call_read(&call, cx)
        } else {
            let text = self.expand_with(text, true, cx);
            Some(String::from_utf8_lossy(&unquote(&text)).into_owned())
        };
        let Some(mut value) = value else { return };
        if ends_line && !value.ends_with('\n') {
            value.push('\n');
        }
        match file {
            None => cx.services.system.write_text(TextOutput::Out, &value),
            Some(name) => {
                if let Err(reason) = cx.services.system.write_file(&name, value.as_bytes(), is_new) {
                    self.error(reason);
                }
            }
        }
    }

    /// Expands the name and the argument of a handler. With `unquotes`, quotes are removed from the argument.
    pub(super) fn expand_call(&mut self, text: &str, unquotes: bool, cx: &mut ElementContext<'_>) -> String {
        let call = self.expand_with(text, false, cx);
        if !unquotes {
            return call;
        }
        let (name, argument) = shift_word(&call);
        format!("{name} {}", String::from_utf8_lossy(&unquote(argument)))
    }

    pub(super) fn expand(&mut self, text: &str, unquotes: bool, cx: &mut ElementContext<'_>) -> String {
        let text = self.expand_with(text, false, cx);
        if unquotes { String::from_utf8_lossy(&unquote(&text)).into_owned() } else { text }
    }

    pub(super) fn expand_with(&mut self, text: &str, quotes: bool, cx: &mut ElementContext<'_>) -> String {
        expand(text, quotes, &mut MachineValues { machine: self, cx })
    }

    /// Returns the handler's name of a call of this script itself.
    fn own_handler<'t>(call: &'t str, cx: &ElementContext<'_>) -> Option<&'t str> {
        let name = shift_word(call).0;
        match name.rsplit_once('.') {
            None => Some(name),
            Some((element, handler)) => (cx.find(element) == Some(cx.element())).then_some(handler),
        }
    }

    /// Reads a handler: of this script first. An error is reported.
    pub(super) fn call_read(&mut self, call: &str, cx: &mut ElementContext<'_>) -> Option<String> {
        let argument = shift_word(call).1;
        let own = Self::own_handler(call, cx).and_then(|name| {
            self.own_value(name, argument, cx).or_else(|| functions::call_private(name, argument, cx))
        });
        let result = own.unwrap_or_else(|| cx.read_handler(call));
        match result {
            Ok(value) => Some(value),
            Err(reason) => {
                self.error(format!("while calling '{}': {reason}", shift_word(call).0));
                None
            }
        }
    }

    pub(super) fn call_write(&mut self, call: &str, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let value = shift_word(call).1;
        match Self::own_handler(call, cx) {
            Some("set") => self.set_by_handler(value),
            Some("goto") => self.go_to(value),
            Some("step") => {
                let steps = if value.is_empty() { 1 } else { crate::values::read(value)? };
                self.more_steps = self.more_steps.saturating_add(steps);
                Ok(())
            }
            _ => cx.write_handler(call).map(|_| ()),
        }
    }
}

/// The values of references in the texts of a script.
struct MachineValues<'a, 'c> {
    machine: &'a mut ScriptMachine,
    cx: &'a mut ElementContext<'c>,
}

impl ScriptValues for MachineValues<'_, '_> {
    fn variable(&mut self, name: &str) -> Option<String> {
        let ScriptMachine { variables, call, status, .. } = self.machine;
        if let Some(value) = variables.get(name) {
            return Some(value.clone());
        }
        let number = || name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match name {
            "?" => Some(status.to_string()),
            "args" => Some(call.arguments.clone()),
            "0" => Some(call.handler.clone()),
            "#" => Some(split_words(&call.arguments).count().to_string()),
            "write" => Some(call.is_write.to_string()),
            "$" => Some(self.cx.services.system.process_id().to_string()),
            _ => number().map(|index| split_words(&call.arguments).nth(index).unwrap_or("").to_owned()),
        }
    }

    fn handler(&mut self, call: &str) -> Option<String> {
        self.machine.call_read(call, self.cx)
    }

    fn charge(&mut self, length: usize) -> bool {
        self.machine.text = self.machine.text.saturating_add(length);
        self.machine.text <= TEXT_MAX
    }
}
