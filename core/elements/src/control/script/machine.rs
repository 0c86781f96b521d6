//! The state of a script, and its execution.

mod calls;

use super::ScriptType;
use super::functions;
use super::instruction::{JumpTarget, ScriptEnd, ScriptInstruction, ScriptProgram};
use std::collections::BTreeMap;
use weir_graph::arguments::text::shift_word;
use weir_graph::engine::{ElementContext, Reason, TextOutput};
use weir_units::{Nanos, Timestamp};

/// The most instructions between two waits.
const INSTRUCTIONS_MAX: u32 = 100_000;

/// The most bytes of text that are made between two waits.
pub const TEXT_MAX: usize = 4 << 20;

/// The most bytes of a variable.
const VALUE_MAX: usize = 64 << 10;

/// The most variables.
const VARIABLES_MAX: usize = 1024;

/// The most errors of a run that are kept.
const ERRORS_MAX: usize = 20;

/// A call of a handler that runs a script.
#[derive(Clone, Debug, Default)]
pub struct ScriptCall {
    pub handler: String,
    pub arguments: String,
    pub is_write: bool,
}

/// A script with its variables.
pub struct ScriptMachine {
    pub kind: ScriptType,
    program: ScriptProgram,
    variables: BTreeMap<String, String>,
    /// The next instruction.
    at: usize,
    /// The script executed too much without a wait.
    is_disabled: bool,
    /// The script runs when its first timer expires.
    is_new: bool,
    call: ScriptCall,
    /// The result of the latest `write`.
    status: i32,
    /// The value of `return`.
    value: String,
    /// The bytes of text since the latest wait.
    text: usize,
    errors: Vec<Reason>,
    /// Steps that the script itself asked for.
    more_steps: u32,
    /// The end of the latest run, if it has ended.
    ended: Option<ScriptEnd>,
}

/// The way in which an execution went on after an instruction.
enum Progress {
    Next,
    Waits,
    Ended(ScriptEnd),
    Returned,
}

impl ScriptMachine {
    /// Returns a script at its start.
    pub fn new(kind: ScriptType, program: ScriptProgram) -> Self {
        Self {
            kind,
            program,
            variables: BTreeMap::new(),
            at: 0,
            is_disabled: false,
            is_new: false,
            call: ScriptCall::default(),
            status: 0,
            value: String::new(),
            text: 0,
            errors: Vec::new(),
            more_steps: 0,
            ended: None,
        }
    }

    /// Returns the variables that can be read as handlers.
    pub fn exports(&self) -> &[String] {
        &self.program.exports
    }

    /// Returns the errors since the latest call, and forgets them.
    pub fn take_errors(&mut self) -> Vec<Reason> {
        std::mem::take(&mut self.errors)
    }

    /// Returns the end of the latest run, if it has ended, and forgets it.
    pub fn take_end(&mut self) -> Option<ScriptEnd> {
        self.ended.take()
    }

    fn error(&mut self, reason: impl Into<Reason>) {
        let reason = reason.into();
        // A loop repeats its errors.
        if self.errors.len() < ERRORS_MAX && !self.errors.contains(&reason) {
            self.errors.push(reason);
        }
    }

    /// Sets a variable.
    fn set(&mut self, name: &str, value: String) -> Result<(), Reason> {
        if value.len() > VALUE_MAX {
            return Err(format!("the value of '{name}' has more than {VALUE_MAX} bytes"));
        }
        if self.variables.len() >= VARIABLES_MAX && !self.variables.contains_key(name) {
            return Err(format!("there are {VARIABLES_MAX} variables already"));
        }
        self.variables.insert(name.to_owned(), value);
        Ok(())
    }

    fn set_or_report(&mut self, name: &str, value: String) {
        if let Err(reason) = self.set(name, value) {
            self.error(reason);
        }
    }

    /// Sets a variable, by the value of the handler `set`: its name and value.
    pub fn set_by_handler(&mut self, text: &str) -> Result<(), Reason> {
        match shift_word(text) {
            ("", _) => Err("the name of a variable is missing".to_owned()),
            ("args", value) => {
                self.call.arguments = value.to_owned();
                Ok(())
            }
            (name, value) => self.set(name, value.to_owned()),
        }
    }

    /// Sets `$input`.
    pub fn set_input(&mut self, input: usize) {
        self.set_or_report("input", input.to_string());
    }

    /// Returns the value of a handler without a run: of a variable or a function. `None` for another name.
    pub fn own_value(
        &mut self,
        name: &str,
        argument: &str,
        cx: &mut ElementContext<'_>,
    ) -> Option<Result<String, Reason>> {
        match name {
            "get" | "shift" => Some(self.variable_handler(name, argument)),
            _ if self.program.exports.iter().any(|export| export == name) => {
                Some(Ok(self.variables.get(name).cloned().unwrap_or_default()))
            }
            _ => functions::call(name, argument, &self.program.exports, cx),
        }
    }

    fn variable_handler(&mut self, handler: &str, argument: &str) -> Result<String, Reason> {
        let (name, rest) = shift_word(argument);
        let name = if name.is_empty() && handler == "shift" { "args" } else { name };
        if name.is_empty() || !rest.is_empty() {
            return Err("expected the name of a variable".to_owned());
        }
        let value = match name {
            "args" => Some(&mut self.call.arguments),
            _ => self.variables.get_mut(name),
        };
        let value = value.ok_or_else(|| format!("there is no variable '{name}'"))?;
        if handler == "get" {
            return Ok(value.clone());
        }
        let (first, rest) = shift_word(value);
        let (first, rest) = (first.to_owned(), rest.to_owned());
        *value = rest;
        Ok(first)
    }

    /// Sets the variables of `init` and `export`, and starts a script that is not started by others.
    pub fn begin(&mut self, cx: &mut ElementContext<'_>) {
        for index in 0..self.program.instructions.len() {
            if let ScriptInstruction::Init { text, unquotes, variable } =
                self.program.instructions[index].clone()
            {
                let value = self.expand(&text, unquotes, cx);
                self.set_or_report(&variable, value);
            }
        }
        self.text = 0;
        match (self.kind, self.program.instructions.first().cloned()) {
            (ScriptType::Active | ScriptType::Driver, Some(ScriptInstruction::WaitTime(text))) => {
                self.wait_for(&text, cx);
            }
            (ScriptType::Driver, Some(ScriptInstruction::Begin)) => {
                self.is_new = true;
                cx.services.stop();
            }
            (ScriptType::Active, Some(ScriptInstruction::Begin)) => {
                self.is_new = true;
                let now = cx.services.coarse_now();
                cx.set_timer(now, 0);
            }
            _ => {}
        }
    }

    /// Goes to a label.
    pub fn go_to(&mut self, label: &str) -> Result<(), Reason> {
        match self.program.target(label.trim()) {
            Some(JumpTarget::ScriptInstruction(index)) => {
                self.restart_waits(index..self.program.instructions.len());
                self.at = index;
                Ok(())
            }
            _ => Err(format!("no label named '{}'", label.trim())),
        }
    }

    fn restart_waits(&mut self, range: std::ops::Range<usize>) {
        for instruction in self.program.instructions.get_mut(range).unwrap_or_default() {
            if let ScriptInstruction::WaitSteps { done, .. } = instruction {
                *done = 0;
            }
        }
    }

    /// Runs the script from its start, and returns its value.
    ///
    /// # Errors
    ///
    /// Fails if the script ends with an error; the errors are those of [`ScriptMachine::take_errors`].
    pub fn run_from_start(
        &mut self,
        call: ScriptCall,
        cx: &mut ElementContext<'_>,
    ) -> Result<String, Reason> {
        self.at = 0;
        self.step(0, false, call, cx)
    }

    /// Goes on, past this number of waits, and returns the value of the script if it ends. `by_driver` states that the
    /// driver is to stop otherwise.
    ///
    /// # Errors
    ///
    /// Fails if the script ends with an error.
    pub fn step(
        &mut self,
        steps: u32,
        by_driver: bool,
        call: ScriptCall,
        cx: &mut ElementContext<'_>,
    ) -> Result<String, Reason> {
        if self.is_disabled {
            return Ok(String::new());
        }
        self.call = call;
        self.text = 0;
        self.more_steps = steps;
        for _ in 0..INSTRUCTIONS_MAX {
            if self.text > TEXT_MAX {
                break;
            }
            match self.execute(cx) {
                Progress::Next => {}
                Progress::Waits => {
                    if by_driver {
                        cx.services.withdraw_stop();
                    }
                    return Ok(String::new());
                }
                Progress::Returned => {
                    self.ended = Some(ScriptEnd::End);
                    if by_driver {
                        cx.services.withdraw_stop();
                    }
                    return Ok(std::mem::take(&mut self.value));
                }
                Progress::Ended(end) => {
                    self.ended = Some(end);
                    return self.end(end, by_driver, cx);
                }
            }
        }
        self.is_disabled = true;
        cx.services.schedule.cancel_timer(cx.element(), 0);
        self.error(format!(
            "the script is disabled: more than {INSTRUCTIONS_MAX} instructions or {TEXT_MAX} bytes of text without a wait"
        ));
        Err(String::new())
    }

    fn end(&self, end: ScriptEnd, by_driver: bool, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
        match end {
            ScriptEnd::Stop if !by_driver => cx.services.stop(),
            ScriptEnd::Error { .. } => return Err(String::new()),
            _ => {}
        }
        let is_sent = end == ScriptEnd::End && self.kind == ScriptType::Packet;
        Ok(if is_sent { "0" } else { "" }.to_owned())
    }

    /// Executes the instruction at the present place.
    fn execute(&mut self, cx: &mut ElementContext<'_>) -> Progress {
        let here = self.at;
        let Some(instruction) = self.program.instructions.get(here).cloned() else {
            return Progress::Ended(ScriptEnd::End);
        };
        // A handler that is called can set another place.
        self.at = here + 1;
        match instruction {
            ScriptInstruction::Begin => {
                if std::mem::take(&mut self.is_new) {
                    self.more_steps = self.more_steps.saturating_sub(1);
                }
            }
            ScriptInstruction::WaitSteps { steps, done } => {
                let taken = self.more_steps.min(steps.saturating_sub(done));
                self.more_steps -= taken;
                if let Some(ScriptInstruction::WaitSteps { done, .. }) =
                    self.program.instructions.get_mut(here)
                {
                    *done += taken;
                }
                if done + taken < steps {
                    self.at = here;
                    return Progress::Waits;
                }
            }
            ScriptInstruction::WaitTime(text) => {
                if self.more_steps == 0 {
                    if self.wait_for(&text, cx) {
                        self.at = here;
                    }
                    return Progress::Waits;
                }
                self.more_steps -= 1;
                cx.services.schedule.cancel_timer(cx.element(), 0);
            }
            ScriptInstruction::Label(_) | ScriptInstruction::Init { .. } => {}
            ScriptInstruction::Set { text, unquotes, variable } => {
                let value = self.expand(&text, unquotes, cx);
                self.set_or_report(&variable, value);
            }
            ScriptInstruction::Print { text, unquotes, ends_line } => {
                self.print(&text, unquotes, ends_line, cx)
            }
            ScriptInstruction::Read { text, unquotes } => {
                let call = self.expand_call(&text, unquotes, cx);
                if let Some(value) = self.call_read(&call, cx) {
                    let name = shift_word(&call).0;
                    cx.services.system.write_text(TextOutput::Error, &format!("{name}:\n{value}\n"));
                }
            }
            ScriptInstruction::Write { text, unquotes } => {
                let call = self.expand_call(&text, unquotes, cx);
                let result = self.call_write(&call, cx);
                self.status = if result.is_ok() { 0 } else { -1 };
                if let Err(reason) = result {
                    self.error(format!("while calling '{}': {reason}", shift_word(&call).0));
                }
            }
            ScriptInstruction::Return { text, unquotes } => {
                self.value = self.expand(&text, unquotes, cx);
                // The end of a script stays its place, so that a further step has no effect.
                self.at = here;
                return Progress::Returned;
            }
            ScriptInstruction::Goto { target, condition } => {
                let condition = self.expand(&condition, false, cx);
                let holds = if condition.is_empty() { Ok(true) } else { crate::values::read(&condition) };
                match (holds, target) {
                    (Ok(true), JumpTarget::ScriptInstruction(index)) => {
                        self.restart_waits(index.min(here)..here);
                        self.at = index;
                    }
                    (Ok(true), JumpTarget::End(end)) => {
                        self.at = here;
                        return Progress::Ended(end);
                    }
                    (Ok(false), _) => {}
                    (Err(_), _) => self.error(format!("'{condition}' is no condition")),
                }
            }
            ScriptInstruction::End(end, text) => {
                if let ScriptEnd::Error { unquotes } = end {
                    let message = self.expand(&text, unquotes, cx);
                    if !message.is_empty() {
                        self.error(message);
                    }
                }
                self.at = here;
                return Progress::Ended(end);
            }
        }
        Progress::Next
    }

    /// Sets the timer. Returns false if the text is no time.
    fn wait_for(&mut self, text: &str, cx: &mut ElementContext<'_>) -> bool {
        let text = self.expand(text, false, cx);
        match crate::values::read::<Nanos>(&text) {
            Ok(Nanos(time)) => {
                let now = cx.services.now();
                // A wait of no time lets others run, too.
                cx.set_timer(Timestamp(now.0.saturating_add(time.max(1))), 0);
                true
            }
            Err(reason) => {
                self.error(format!("wait: {reason}"));
                false
            }
        }
    }
}
