//! The instructions of a script.

use weir_graph::arguments::text::shift_word;
use weir_graph::engine::Reason;

/// An instruction. Texts are expanded when it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptInstruction {
    /// The start of a script that does not begin with a wait.
    Begin,
    /// Sets a variable when the script is initialised.
    Init { text: String, unquotes: bool, variable: String },
    /// Sets a variable.
    Set { text: String, unquotes: bool, variable: String },
    /// Writes a text or the value of a handler to standard output, or to a file.
    Print { text: String, unquotes: bool, ends_line: bool },
    /// Writes the name and the value of a handler to standard error.
    Read { text: String, unquotes: bool },
    /// Calls a write handler.
    Write { text: String, unquotes: bool },
    /// Waits for a number of steps.
    WaitSteps { steps: u32, done: u32 },
    /// Waits for a time, or a step.
    WaitTime(String),
    /// A target of jumps.
    Label(String),
    /// Jumps if a condition is true, or empty.
    Goto { target: JumpTarget, condition: String },
    /// Ends the script with a value.
    Return { text: String, unquotes: bool },
    /// Ends the script.
    End(ScriptEnd, String),
}

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpTarget {
    /// An instruction.
    ScriptInstruction(usize),
    /// The end of the script.
    End(ScriptEnd),
}

/// The way in which a script ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// The script ends. A packet goes to output 0.
    End,
    /// The script ends. A packet is discarded.
    Exit,
    /// The script ends, and the driver has to stop.
    Stop,
    /// The script ends with an error.
    Error {
        /// A layer of quotes is removed from the message.
        unquotes: bool,
    },
}

/// The instructions of a script, and the variables that it exports as handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptProgram {
    pub instructions: Vec<ScriptInstruction>,
    pub exports: Vec<String>,
}

impl ScriptProgram {
    /// Reads instructions. `at_end` is the way in which a script ends behind its last instruction.
    ///
    /// # Errors
    ///
    /// Fails with all that is wrong.
    pub fn read(texts: &[String], is_driver: bool) -> Result<Self, Vec<Reason>> {
        let mut program = ScriptProgram::default();
        let mut errors = Vec::new();
        // The names of the targets of jumps, in the order of the jumps.
        let mut targets = Vec::new();
        for text in texts {
            let (name, rest) = shift_word(text);
            if name.is_empty() {
                continue;
            }
            match program.instruction(name, rest, &mut targets) {
                Ok(instruction) => program.add(instruction),
                Err(reason) => errors.push(format!("'{name}': {reason}")),
            }
        }
        if is_driver && program.instructions.is_empty() {
            program.add(ScriptInstruction::WaitSteps { steps: 1, done: 0 });
        }
        let end = if is_driver { ScriptEnd::Stop } else { ScriptEnd::End };
        program.add(ScriptInstruction::End(end, String::new()));
        let mut names = targets.into_iter();
        for index in 0..program.instructions.len() {
            if !matches!(program.instructions[index], ScriptInstruction::Goto { .. }) {
                continue;
            }
            let Some(name) = names.next() else { break };
            match program.target(&name) {
                Some(found) => {
                    if let ScriptInstruction::Goto { target, .. } = &mut program.instructions[index] {
                        *target = found;
                    }
                }
                None => errors.push(format!("no label named '{name}'")),
            }
        }
        if errors.is_empty() { Ok(program) } else { Err(errors) }
    }

    fn add(&mut self, instruction: ScriptInstruction) {
        let is_wait =
            matches!(instruction, ScriptInstruction::WaitSteps { .. } | ScriptInstruction::WaitTime(_));
        if self.instructions.is_empty() && !is_wait {
            self.instructions.push(ScriptInstruction::Begin);
        }
        self.instructions.push(instruction);
    }

    fn instruction(
        &mut self,
        name: &str,
        rest: &str,
        targets: &mut Vec<String>,
    ) -> Result<ScriptInstruction, Reason> {
        let none = |instruction| match rest {
            "" => Ok(instruction),
            _ => Err("takes no argument".to_owned()),
        };
        let text = rest.to_owned();
        // `setq` is `set` that removes quotes, and so on.
        let base = name.strip_suffix('q').unwrap_or(name);
        let unquotes = base != name;
        let variable = || match shift_word(rest) {
            ("", _) => Err("the name of a variable is missing".to_owned()),
            (variable, text) => Ok((variable.to_owned(), text.to_owned())),
        };
        let jump = |target, condition| ScriptInstruction::Goto { target, condition };
        Ok(match base {
            "set" => {
                let (variable, text) = variable()?;
                if text.is_empty() {
                    return Err("the value is missing".to_owned());
                }
                ScriptInstruction::Set { text, unquotes, variable }
            }
            "init" | "export" => {
                let (variable, text) = variable()?;
                if base == "export" {
                    self.exports.push(variable.clone());
                }
                ScriptInstruction::Init { text, unquotes, variable }
            }
            "print" => ScriptInstruction::Print { text, unquotes, ends_line: true },
            "printn" => ScriptInstruction::Print { text, unquotes, ends_line: false },
            "read" => ScriptInstruction::Read { text, unquotes },
            "write" => ScriptInstruction::Write { text, unquotes },
            "return" => ScriptInstruction::Return { text, unquotes },
            "error" => ScriptInstruction::End(ScriptEnd::Error { unquotes }, text),
            _ if unquotes => return Err("no such instruction".to_owned()),
            "save" | "append" => {
                let (word, file) = shift_word(rest);
                let file = if file.is_empty() { "-" } else { file };
                let mark = if base == "save" { ">" } else { ">>" };
                ScriptInstruction::Print { text: format!("{mark}{file} {word}"), unquotes, ends_line: true }
            }
            "wait" if !rest.is_empty() => ScriptInstruction::WaitTime(text),
            "wait_time" | "wait_for" => ScriptInstruction::WaitTime(text),
            "wait" | "pause" | "wait_step" | "wait_stop" => {
                let steps = if rest.is_empty() { 1 } else { crate::values::read(rest)? };
                ScriptInstruction::WaitSteps { steps, done: 0 }
            }
            "label" => match shift_word(rest) {
                (label, "") if !label.is_empty() => ScriptInstruction::Label(label.to_owned()),
                _ => return Err("expected one word".to_owned()),
            },
            "goto" => {
                let (label, condition) = shift_word(rest);
                targets.push(label.to_owned());
                jump(JumpTarget::ScriptInstruction(0), condition.to_owned())
            }
            "loop" => {
                targets.push("loop".to_owned());
                none(jump(JumpTarget::ScriptInstruction(0), String::new()))?
            }
            "end" => none(ScriptInstruction::End(ScriptEnd::End, String::new()))?,
            "exit" => none(ScriptInstruction::End(ScriptEnd::Exit, String::new()))?,
            "stop" => none(ScriptInstruction::End(ScriptEnd::Stop, String::new()))?,
            _ => return Err("no such instruction".to_owned()),
        })
    }

    /// Returns the target of jumps to a label.
    pub fn target(&self, label: &str) -> Option<JumpTarget> {
        let is_it = |it: &ScriptInstruction| matches!(it, ScriptInstruction::Label(name) if name == label);
        if let Some(index) = self.instructions.iter().position(is_it) {
            return Some(JumpTarget::ScriptInstruction(index));
        }
        Some(match label {
            "begin" | "loop" => JumpTarget::ScriptInstruction(0),
            "end" => JumpTarget::End(ScriptEnd::End),
            "exit" => JumpTarget::End(ScriptEnd::Exit),
            "stop" => JumpTarget::End(ScriptEnd::Stop),
            "error" | "errorq" => JumpTarget::End(ScriptEnd::Error { unquotes: false }),
            _ => return None,
        })
    }
}
