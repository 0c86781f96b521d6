//! The names of the system's signals.

use weir_graph::engine::Reason;

/// The names of signals, with their numbers in Linux.
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The signals that no program can handle, or that report a fault of the program itself.
const NOT_HANDLED: &[i32] = &[4, 8, 9, 11, 19];

/// Returns the number of a signal: of a name such as `INT` or `SIGINT`, or of a number.
pub fn signal_number(word: &str) -> Result<i32, Reason> {
    let upper = word.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = SIGNALS.iter().find(|(it, number)| *it == name || number.to_string() == name);
    known.map(|(_, number)| *number).ok_or_else(|| {
        let suggestion = weir_graph::nearest(name, SIGNALS.iter().map(|(name, _)| *name));
        let suggestion = suggestion.map_or(String::new(), |name| format!(" (did you mean '{name}'?)"));
        format!("no signal named '{word}'{suggestion}")
    })
}

/// Returns the number of a signal that a script can wait for.
pub fn handled_signal(word: &str) -> Result<i32, Reason> {
    let number = signal_number(word)?;
    if NOT_HANDLED.contains(&number) {
        return Err(format!("a script cannot handle the signal '{word}'"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for word in ["hup", "SIGHUP", "1"] {
            assert_eq!(signal_number(word), Ok(1));
        }
        assert_eq!(signal_number("USR3").unwrap_err(), "no signal named 'USR3' (did you mean 'USR1'?)");
        assert!(signal_number("0").is_err() && signal_number("999").is_err() && signal_number("").is_err());
        assert!(handled_signal("KILL").is_err() && handled_signal("USR2") == Ok(12));
    }
}
