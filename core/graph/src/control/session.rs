//! The state of one connection.

use super::command::{self, CommandForm, ControlCommand};
use crate::engine::{HandlerError, HandlerFault};
use crate::language::limits::SOURCE_BYTES_MAX;

/// The greeting: the name and the version of the protocol.
const GREETING: &str = "Click::ControlSocket/1.3\r\n";

/// The most bytes of a command's line.
const LINE_MAX: usize = 64 << 10;

/// The most bytes that a session stores before it has understood them.
pub const CONTROL_INPUT_MAX: usize = LINE_MAX + 2;

/// The most bytes of a value. A whole configuration has room.
pub const CONTROL_VALUE_MAX: usize = SOURCE_BYTES_MAX;

/// The bytes of output at which a session executes no further command until they are sent.
const OUTPUT_PAUSE: usize = 64 << 10;

/// The bytes of a peer's word that an answer repeats.
const QUOTED_MAX: usize = 200;

const OK: u16 = 200;
const SYNTAX: u16 = 500;
const UNIMPLEMENTED: u16 = 501;
const NO_ELEMENT: u16 = 510;
const NO_HANDLER: u16 = 511;
const HANDLER_FAILED: u16 = 520;
const VALUE_TOO_LONG: u16 = 521;
const PERMISSION: u16 = 530;
const NO_GRAPH: u16 = 540;

/// The direction of a call of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerAction {
    /// Read the handler; the value is its argument.
    Read,
    /// Write the value.
    Write,
    /// Check that the handler can be read.
    CheckRead,
    /// Check that the handler can be written.
    CheckWrite,
}

/// A call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCall {
    /// The direction.
    pub action: HandlerAction,
    /// The handler: `ELEMENT.HANDLER`, `NUMBER.HANDLER` with the number of an element from 1 on, or one of the graph.
    pub name: String,
    /// The value.
    pub value: String,
}

/// The graph whose handlers are called.
pub trait ControlHandlers {
    /// Calls a handler, and returns its value.
    ///
    /// # Errors
    ///
    /// Fails as the handler does, or if there is none.
    fn call(&mut self, call: HandlerCall) -> Result<String, HandlerError>;
}

/// The expected bytes.
#[derive(Debug)]
enum ControlState {
    /// A line with a command.
    Line,
    /// The bytes of a value. A value that is too long is skipped.
    Data { action: Option<HandlerAction>, name: String, left: usize, value: Option<Vec<u8>> },
    /// The lines of a value. `line` is the start of the last one of them.
    Until {
        action: HandlerAction,
        name: String,
        end: Vec<u8>,
        value: Vec<u8>,
        line: usize,
        is_too_long: bool,
    },
    /// None: the connection ends when the output is sent.
    Closed,
}

/// A connection: bytes of a peer in, and answers out.
#[derive(Debug)]
pub struct ControlSession {
    state: ControlState,
    input: Vec<u8>,
    /// The bytes of the input that are understood.
    understood: usize,
    /// The line feed behind a carriage return is part of it.
    skips_line_feed: bool,
    is_input_over: bool,
    output: Vec<u8>,
}

impl Default for ControlSession {
    /// Returns a session whose output is the greeting.
    fn default() -> Self {
        Self {
            state: ControlState::Line,
            input: Vec::new(),
            understood: 0,
            skips_line_feed: false,
            is_input_over: false,
            output: GREETING.into(),
        }
    }
}

impl ControlSession {
    /// Returns the number of bytes that the session takes at present.
    pub fn room(&self) -> usize {
        match self.state {
            ControlState::Closed => 0,
            _ => CONTROL_INPUT_MAX.saturating_sub(self.rest().len()),
        }
    }

    /// Takes bytes of the peer, up to the room, and returns their number.
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.input.drain(..std::mem::take(&mut self.understood));
        self.input.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Returns the bytes that are not understood yet.
    fn rest(&self) -> &[u8] {
        &self.input[self.understood..]
    }

    /// Notes that the peer sends nothing more. The session answers what is there, and closes.
    pub fn end_input(&mut self) {
        self.is_input_over = true;
    }

    /// Returns the bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes bytes that were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
    }

    /// Returns true if the connection ends when the output is sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, ControlState::Closed)
    }

    /// Executes the commands that are complete, as long as there is little output. Returns true if it has to be called
    /// again when the output is sent.
    pub fn advance(&mut self, handlers: &mut dyn ControlHandlers) -> bool {
        while self.output.len() < OUTPUT_PAUSE {
            if std::mem::take(&mut self.skips_line_feed) {
                match self.rest().first() {
                    Some(b'\n') => self.understood += 1,
                    Some(_) => {}
                    None => self.skips_line_feed = true,
                }
            }
            let is_done = match self.state {
                ControlState::Line => self.take_line(handlers),
                ControlState::Data { .. } => self.take_data(handlers),
                ControlState::Until { .. } => self.take_until(handlers),
                ControlState::Closed => return false,
            };
            if !is_done {
                if self.is_input_over {
                    if !matches!(self.state, ControlState::Line) {
                        self.message(SYNTAX, "not enough data");
                    }
                    self.close();
                }
                return false;
            }
        }
        true
    }

    fn close(&mut self) {
        self.state = ControlState::Closed;
        (self.input, self.understood) = (Vec::new(), 0);
    }

    /// Removes the bytes before the next end of a line, and the end. `None` if there is no end yet.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        let rest = self.rest();
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
        let line = rest[..end].to_vec();
        self.end_line(end);
        Some(line)
    }

    /// Removes a line with its end, which is at this place.
    fn end_line(&mut self, end: usize) {
        self.skips_line_feed = self.rest()[end] == b'\r';
        self.understood += end + 1;
    }

    fn take_line(&mut self, handlers: &mut dyn ControlHandlers) -> bool {
        let line = match self.next_line() {
            Some(line) => line,
            // The last line needs no end.
            None if self.is_input_over && !self.rest().is_empty() => {
                let line = self.rest().to_vec();
                self.understood = self.input.len();
                line
            }
            None => {
                if self.rest().len() > LINE_MAX {
                    self.message(SYNTAX, &format!("the line has more than {LINE_MAX} bytes; use WRITEDATA"));
                    self.close();
                    return true;
                }
                return false;
            }
        };
        self.execute(&String::from_utf8_lossy(&line), handlers);
        true
    }

    fn execute(&mut self, line: &str, handlers: &mut dyn ControlHandlers) {
        let word = |text: &'_ str| -> (String, String) {
            let (word, rest) = text.split_once(|it: char| it.is_ascii_whitespace()).unwrap_or((text, ""));
            (word.to_owned(), rest.trim_ascii().to_owned())
        };
        let (name, rest) = word(line.trim_ascii());
        if name.is_empty() {
            return;
        }
        let Some(found) = command::find(&name) else {
            return self.message(UNIMPLEMENTED, &format!("command '{}' unimplemented", quoted(&name)));
        };
        let ControlCommand { form, is_read, .. } = *found;
        let action = if is_read { HandlerAction::Read } else { HandlerAction::Write };
        let (handler, value) = word(&rest);
        let takes_handler = !matches!(form, CommandForm::Help | CommandForm::Quit);
        if takes_handler == handler.is_empty() && form != CommandForm::Quit {
            return self.message(SYNTAX, "wrong number of arguments");
        }
        match form {
            CommandForm::Value => self.call(HandlerCall { action, name: handler, value }, handlers),
            CommandForm::Check if value.is_empty() => {
                let action = if is_read { HandlerAction::CheckRead } else { HandlerAction::CheckWrite };
                self.call(HandlerCall { action, name: handler, value }, handlers);
            }
            CommandForm::Check => self.message(SYNTAX, "wrong number of arguments"),
            CommandForm::Until => {
                self.state = ControlState::Until {
                    action,
                    name: handler,
                    end: value.into_bytes(),
                    value: Vec::new(),
                    line: 0,
                    is_too_long: false,
                };
            }
            CommandForm::Data | CommandForm::Llrpc => {
                let is_llrpc = form == CommandForm::Llrpc;
                let length = if is_llrpc && value.is_empty() { Ok(0) } else { value.parse::<usize>() };
                let Ok(left) = length else {
                    return self.message(SYNTAX, &format!("expected: {} HANDLER N", found.name));
                };
                let is_kept = !is_llrpc && left <= CONTROL_VALUE_MAX;
                self.state = ControlState::Data {
                    action: (!is_llrpc).then_some(action),
                    name: handler,
                    left,
                    value: is_kept.then(Vec::new),
                };
            }
            CommandForm::Help => {
                self.line(OK, true, "commands:");
                let lines: Vec<String> = command::help().collect();
                let last = lines.len().saturating_sub(1);
                for (index, line) in lines.iter().enumerate() {
                    self.line(OK, index < last, line);
                }
            }
            CommandForm::Quit => {
                self.message(OK, "goodbye");
                self.close();
            }
        }
    }

    fn take_data(&mut self, handlers: &mut dyn ControlHandlers) -> bool {
        let ControlState::Data { left, value, .. } = &mut self.state else { return false };
        let rest = &self.input[self.understood..];
        let taken = (*left).min(rest.len());
        if let Some(value) = value {
            value.extend_from_slice(&rest[..taken]);
        }
        self.understood += taken;
        *left -= taken;
        if *left > 0 {
            return false;
        }
        if let ControlState::Data { action, name, value, .. } =
            std::mem::replace(&mut self.state, ControlState::Line)
        {
            match (action, value) {
                (None, _) => self.message(UNIMPLEMENTED, "LLRPC is not implemented"),
                (Some(action), Some(value)) => self.call_with(action, name, &value, handlers),
                (Some(_), None) => self.too_long(),
            }
        }
        true
    }

    fn take_until(&mut self, handlers: &mut dyn ControlHandlers) -> bool {
        let rest = &self.input[self.understood..];
        let end_of_line = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let ControlState::Until { end, value, line, is_too_long, .. } = &mut self.state else { return false };
        value.extend_from_slice(&rest[..end_of_line.unwrap_or(rest.len())]);
        if value.len() > CONTROL_VALUE_MAX {
            *is_too_long = true;
        }
        if *is_too_long {
            // The line may still be the last one.
            value.drain(..*line);
            *line = 0;
            value.truncate(LINE_MAX + 1);
        }
        let Some(end_of_line) = end_of_line else {
            self.understood = self.input.len();
            return false;
        };
        if value[*line..].trim_ascii_end() != end.as_slice() {
            // The ends of lines become line feeds.
            value.push(b'\n');
            *line = value.len();
        } else if let ControlState::Until { action, name, mut value, line, is_too_long, .. } =
            std::mem::replace(&mut self.state, ControlState::Line)
        {
            self.end_line(end_of_line);
            value.truncate(line);
            if is_too_long {
                self.too_long();
            } else {
                self.call_with(action, name, &value, handlers);
            }
            return true;
        }
        self.end_line(end_of_line);
        true
    }

    fn too_long(&mut self) {
        self.message(VALUE_TOO_LONG, &format!("the value has more than {CONTROL_VALUE_MAX} bytes"));
    }

    fn call_with(
        &mut self,
        action: HandlerAction,
        name: String,
        value: &[u8],
        handlers: &mut dyn ControlHandlers,
    ) {
        let value = String::from_utf8_lossy(value).into_owned();
        self.call(HandlerCall { action, name, value }, handlers);
    }

    fn call(&mut self, call: HandlerCall, handlers: &mut dyn ControlHandlers) {
        let name = quoted(&call.name);
        let action = call.action;
        let kind = match action {
            HandlerAction::Read | HandlerAction::CheckRead => "Read",
            HandlerAction::Write | HandlerAction::CheckWrite => "Write",
        };
        match handlers.call(call) {
            Ok(value) => {
                self.message(OK, &format!("{kind} handler '{name}' OK"));
                if action == HandlerAction::Read {
                    self.output.extend_from_slice(format!("DATA {}\r\n", value.len()).as_bytes());
                    self.output.extend_from_slice(value.as_bytes());
                }
            }
            Err(HandlerError { fault, text }) => {
                let is_check = matches!(action, HandlerAction::CheckRead | HandlerAction::CheckWrite);
                match fault {
                    HandlerFault::NoElement => self.message(NO_ELEMENT, &text),
                    HandlerFault::NoHandler => self.message(NO_HANDLER, &text),
                    HandlerFault::OtherDirection if is_check => self.message(NO_HANDLER, &text),
                    HandlerFault::OtherDirection | HandlerFault::NotPermitted => {
                        self.message(PERMISSION, &text);
                    }
                    HandlerFault::NoGraph => self.message(NO_GRAPH, &text),
                    HandlerFault::Failed => {
                        self.message(HANDLER_FAILED, &format!("{kind} handler '{name}' error:\n{text}"));
                    }
                }
            }
        }
    }

    /// Answers with a text: each of its lines gets the code.
    fn message(&mut self, code: u16, text: &str) {
        let mut lines = text.split(['\r', '\n']).filter(|line| !line.is_empty()).peekable();
        if lines.peek().is_none() {
            self.line(code, false, "");
        }
        while let Some(line) = lines.next() {
            let goes_on = lines.peek().is_some();
            self.line(code, goes_on, line);
        }
    }

    fn line(&mut self, code: u16, goes_on: bool, text: &str) {
        let mark = if goes_on { '-' } else { ' ' };
        self.output.extend_from_slice(format!("{code}{mark}{text}\r\n").as_bytes());
    }
}

/// Returns the beginning of a peer's word.
fn quoted(word: &str) -> String {
    word.chars().take(QUOTED_MAX).collect()
}
