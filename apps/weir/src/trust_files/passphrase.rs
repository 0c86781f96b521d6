//! Reads a passphrase from the terminal without echo.

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Stdin, Write};
use weir_trust::key::PASSPHRASE_BYTES_MAX;
use zeroize::Zeroizing;

/// Ctrl-C.
const INTERRUPT: u8 = 0x03;
/// Ctrl-D.
const END: u8 = 0x04;
/// Backspace and delete.
const ERASE: [u8; 2] = [0x08, 0x7f];
/// Ctrl-U.
const ERASE_ALL: u8 = 0x15;

/// Asks for the passphrase of the key file `name`. Returns `None` if standard input or standard error is not a
/// terminal.
///
/// # Errors
/// The terminal fails, or the user presses Ctrl-C.
pub fn prompt(name: &str) -> io::Result<Option<Zeroizing<String>>> {
    with_terminal(|terminal| read_hidden_line(terminal, &format!("Passphrase of {name}: ")))
}

/// Asks for a new passphrase of the key file `name`, twice to detect typing errors. Returns `None` if standard input or
/// standard error is not a terminal.
///
/// # Errors
/// As for [`prompt`]; or the passphrase is empty, or the two entries differ.
pub fn prompt_new(name: &str) -> io::Result<Option<Zeroizing<String>>> {
    with_terminal(|terminal| {
        let first = read_hidden_line(terminal, &format!("New passphrase of {name}: "))?;
        if first.is_empty() {
            return Err(io::Error::other("the passphrase must not be empty"));
        }
        let repeated = read_hidden_line(terminal, "Repeat the passphrase: ")?;
        if first != repeated {
            return Err(io::Error::other("the two passphrases differ"));
        }
        Ok(first)
    })
}

fn with_terminal<T>(prompt: impl FnOnce(&Stdin) -> io::Result<T>) -> io::Result<Option<T>> {
    let terminal = io::stdin();
    if !terminal.is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let _no_echo = NoEcho::enable(&terminal)?;
    prompt(&terminal).map(Some)
}

/// A terminal without echo, in non-canonical mode and without signals from keys. With signals, Ctrl-C would end the
/// program and leave the terminal without echo. Dropping this value restores the terminal's earlier modes.
struct NoEcho<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> NoEcho<'a> {
    fn enable(terminal: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Discards the keys typed before, which the terminal has echoed.
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for NoEcho<'_> {
    fn drop(&mut self) {
        _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn read_hidden_line(terminal: &Stdin, prompt: &str) -> io::Result<Zeroizing<String>> {
    let mut out = io::stderr();
    out.write_all(prompt.as_bytes())?;
    out.flush()?;
    // Bypasses the buffer of `Stdin`, which is not overwritten with zeros.
    let typed = line(|| {
        let mut key = [0];
        loop {
            match rustix::io::read(terminal, &mut key) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(key[0])),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    });
    _ = out.write_all(b"\n");
    typed
}

/// Reads keys from `next` up to the end of the line or of the input. Backspace, delete and Ctrl-U edit the line.
fn line(mut next: impl FnMut() -> io::Result<Option<u8>>) -> io::Result<Zeroizing<String>> {
    // Allocated at full size: a reallocation would leave a copy of the passphrase that is not overwritten with zeros.
    let mut typed = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES_MAX));
    loop {
        match next()? {
            None | Some(b'\n' | b'\r') => break,
            Some(END) if typed.is_empty() => break,
            Some(END) => {}
            Some(INTERRUPT) => return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
            Some(ERASE_ALL) => typed.clear(),
            Some(key) if ERASE.contains(&key) => {
                // Removes all bytes of the UTF-8 character.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            Some(_) if typed.len() == PASSPHRASE_BYTES_MAX => {
                return Err(io::Error::other(format!(
                    "a passphrase has at most {PASSPHRASE_BYTES_MAX} bytes"
                )));
            }
            Some(key) => typed.push(key),
        }
    }
    let text =
        std::str::from_utf8(&typed).map_err(|_| io::Error::other("the passphrase is not valid UTF-8"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[u8]) -> Result<String, String> {
        let mut keys = keys.iter().copied();
        line(|| Ok(keys.next())).map(|line| line.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn editing_keys_change_the_line() {
        for (keys, text) in [
            (&b"correct horse\n"[..], "correct horse"),
            (b"correct\rx", "correct"),
            (b"corx\x7frex\x08ct\n", "correct"),
            ("caf\u{e9}e\x7f\x7fe\n".as_bytes(), "cafe"),
            (b"\x7f\x7fa\n", "a"),
            (b"wrong\x15right\n", "right"),
            (b"a\x04b\n", "ab"),
            (b"\x04", ""),
            (b"no end", "no end"),
        ] {
            assert_eq!(typed(keys).as_deref(), Ok(text));
        }
        assert_eq!(typed(b"a\x03"), Err("interrupted".to_owned()));
        assert_eq!(typed(b"\xff\n"), Err("the passphrase is not valid UTF-8".to_owned()));
        assert!(typed(&[b'a'; PASSPHRASE_BYTES_MAX]).is_ok());
        assert!(typed(&[b'a'; PASSPHRASE_BYTES_MAX + 1]).unwrap_err().contains("at most"));
    }
}
