//! The functions that a script offers as read handlers.

use super::numbers::{arithmetic, compare, remainder, signed, sprintf};
use super::signals::signal_number;
use weir_graph::arguments::text::{quote, shift_word, split_words, unquote};
use weir_graph::engine::{ElementContext, HandlerDefinition, Reason};

/// The names of all functions that need no state of a script.
pub const FUNCTIONS: &[&str] = &[
    "add", "sub", "mul", "div", "idiv", "min", "max", "mod", "rem", "neg", "abs", "eq", "ne", "lt", "le",
    "gt", "ge", "not", "and", "or", "nand", "nor", "if", "in", "first", "sprintf", "random", "length",
    "unquote", "readable", "writable", "now", "htons", "htonl", "ntohs", "ntohl",
];

/// The functions that only scripts themselves can call: they have the rights of the operator.
pub const PRIVATE_FUNCTIONS: &[&str] = &["cat", "catq", "kill"];

fn truth(word: &str) -> Result<bool, Reason> {
    crate::values::read(word)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the value of a function; `None` for a name that is none. `exports` are the variables that the script exports.
pub fn call(
    name: &str,
    argument: &str,
    exports: &[String],
    cx: &mut ElementContext<'_>,
) -> Option<Result<String, Reason>> {
    Some(match name {
        "add" | "sub" | "mul" | "div" | "idiv" | "min" | "max" => arithmetic(name, argument),
        "mod" | "rem" => remainder(name, argument),
        "neg" | "abs" => signed(name, argument),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => compare(name, argument),
        "not" => truth(argument).map(|it| (!it).to_string()),
        "and" | "or" | "nand" | "nor" => logic(name, argument),
        "if" => choose(argument),
        "in" => {
            let (word, rest) = shift_word(argument);
            let word = unquote(word);
            Ok((!word.is_empty() && split_words(rest).any(|other| unquote(other) == word)).to_string())
        }
        "first" => Ok(shift_word(argument).0.to_owned()),
        "sprintf" => sprintf(argument),
        "random" => random(argument, cx),
        "length" => Ok(argument.len().to_string()),
        "unquote" => Ok(text(&unquote(argument))),
        "readable" | "writable" => Ok(has_handlers(argument, name == "readable", exports, cx).to_string()),
        "now" => Ok(crate::values::seconds(cx.services.now())),
        "htons" | "ntohs" => crate::values::read::<u16>(argument).map(|it| it.to_be().to_string()),
        "htonl" | "ntohl" => crate::values::read::<u32>(argument).map(|it| it.to_be().to_string()),
        _ => return None,
    })
}

/// Returns the value of a private function; `None` for a name that is none.
pub fn call_private(
    name: &str,
    argument: &str,
    cx: &mut ElementContext<'_>,
) -> Option<Result<String, Reason>> {
    if !PRIVATE_FUNCTIONS.contains(&name) {
        return None;
    }
    if name == "kill" {
        return Some(kill(argument, cx).map(|()| String::new()));
    }
    let file = text(&unquote(argument));
    Some(cx.services.system.read_file(&file).map(|bytes| match name {
        "catq" => quote(&bytes),
        _ => text(&bytes),
    }))
}

fn kill(argument: &str, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
    let (signal, processes) = shift_word(argument);
    let signal = signal_number(signal)?;
    let processes: Vec<i32> = split_words(processes).map(crate::values::read).collect::<Result<_, _>>()?;
    if processes.is_empty() {
        return Err("expected: SIGNAL PROCESS...".to_owned());
    }
    processes.into_iter().try_for_each(|process| cx.services.send_signal(process, signal))
}

fn logic(name: &str, list: &str) -> Result<String, Reason> {
    let is_and = matches!(name, "and" | "nand");
    let mut result = is_and;
    for word in split_words(list) {
        let value = truth(word)?;
        result = if is_and { result && value } else { result || value };
        if result != is_and {
            break;
        }
    }
    Ok((result != name.starts_with('n')).to_string())
}

fn choose(argument: &str) -> Result<String, Reason> {
    let (condition, rest) = shift_word(argument);
    let (first, rest) = shift_word(rest);
    Ok(if truth(condition)? { first } else { shift_word(rest).0 }.to_owned())
}

/// The greatest random number without an argument.
const RANDOM_MAX: u64 = 0x7fff_ffff;

fn random(argument: &str, cx: &mut ElementContext<'_>) -> Result<String, Reason> {
    let numbers: Vec<u32> = split_words(argument).map(crate::values::read).collect::<Result<_, _>>()?;
    let (from, count) = match numbers[..] {
        [] => (0, RANDOM_MAX + 1),
        [count] if count > 0 => (0, u64::from(count)),
        [from, to] if from <= to => (u64::from(from), u64::from(to - from) + 1),
        _ => return Err("expected nothing, a number above 0, or a lower and an upper bound".to_owned()),
    };
    Ok((from + cx.services.random() % count).to_string())
}

fn has_handlers(names: &str, is_read: bool, exports: &[String], cx: &mut ElementContext<'_>) -> bool {
    let letter = if is_read { 'r' } else { 'w' };
    split_words(names).all(|name| {
        let (list, handler) = match name.rsplit_once('.') {
            // The script runs, so the list of its handlers has only those that every element has.
            Some((element, handler))
                if cx.find(element) == Some(cx.element()) && is_own(handler, is_read, exports) =>
            {
                return true;
            }
            Some((element, handler)) => (format!("{element}.handlers"), handler),
            None => ("handlers".to_owned(), name),
        };
        let lines = cx.read_handler(&list).unwrap_or_default();
        let found = lines.lines().filter_map(|line| line.split_once('\t'));
        found.into_iter().any(|(name, mode)| name == handler && mode.contains(letter))
    })
}

/// Returns true for a handler that scripts have, or this script adds.
fn is_own(name: &str, is_read: bool, exports: &[String]) -> bool {
    let is = |it: &HandlerDefinition| it.name == name && if is_read { it.reads } else { it.writes };
    super::HANDLERS.iter().any(is) || (is_read && exports.iter().any(|export| export == name))
}
