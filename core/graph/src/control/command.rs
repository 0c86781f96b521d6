//! The commands of the protocol.

/// The form of a command's line, and of the data behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandForm {
    /// A handler and a value on the line.
    Value,
    /// A handler, and the number of bytes that follow the line.
    Data,
    /// A handler, and the line that ends the value.
    Until,
    /// A handler alone.
    Check,
    /// A number of bytes follows, which are skipped.
    Llrpc,
    /// No argument: the list of commands.
    Help,
    /// No argument: the end of the connection.
    Quit,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlCommand {
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    pub form: CommandForm,
    pub is_read: bool,
    /// The arguments, for the help.
    arguments: &'static str,
    description: &'static str,
}

const fn command(
    name: &'static str,
    aliases: &'static [&'static str],
    form: CommandForm,
    arguments: &'static str,
    description: &'static str,
) -> ControlCommand {
    let is_read = matches!(name.as_bytes(), [b'R', ..] | [_, _, _, _, _, b'R', ..]);
    ControlCommand { name, aliases, form, is_read, arguments, description }
}

/// All commands.
pub(super) const COMMANDS: &[ControlCommand] = &[
    command(
        "READ",
        &["GET"],
        CommandForm::Value,
        "HANDLER [VALUE]",
        "reads a handler: a line `DATA N`, then N bytes",
    ),
    command(
        "READDATA",
        &[],
        CommandForm::Data,
        "HANDLER N",
        "reads a handler, with the N bytes behind this line as argument",
    ),
    command(
        "READUNTIL",
        &[],
        CommandForm::Until,
        "HANDLER [END]",
        "reads a handler, with the lines before the line END as argument",
    ),
    command("WRITE", &["SET"], CommandForm::Value, "HANDLER [VALUE]", "writes a handler"),
    command(
        "WRITEDATA",
        &["SETDATA"],
        CommandForm::Data,
        "HANDLER N",
        "writes a handler, with the N bytes behind this line as value",
    ),
    command(
        "WRITEUNTIL",
        &[],
        CommandForm::Until,
        "HANDLER [END]",
        "writes a handler, with the lines before the line END as value",
    ),
    command("CHECKREAD", &[], CommandForm::Check, "HANDLER", "checks that a handler can be read"),
    command("CHECKWRITE", &[], CommandForm::Check, "HANDLER", "checks that a handler can be written"),
    command("LLRPC", &[], CommandForm::Llrpc, "ELEMENT#NUMBER [N]", "is not implemented"),
    command("HELP", &[], CommandForm::Help, "", "lists the commands"),
    command("QUIT", &["CLOSE"], CommandForm::Quit, "", "closes the connection"),
];

/// Returns the command of a name, in upper or lower case.
pub(super) fn find(name: &str) -> Option<&'static ControlCommand> {
    COMMANDS.iter().find(|it| {
        it.name.eq_ignore_ascii_case(name) || it.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    })
}

/// Returns the lines of the help.
pub(super) fn help() -> impl Iterator<Item = String> {
    COMMANDS.iter().map(|it| format!("{:<31} {}", format!("{} {}", it.name, it.arguments), it.description))
}
