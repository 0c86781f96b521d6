//! A passphrase from whoever sits at the terminal, which does not show it.

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Stdin, Write};
use weir_trust::key::PASSPHRASE_BYTES_MAX;
use zeroize::Zeroizing;

/// What keys send that are no part of a text: interrupt, end, erase (two of them), and erase all.
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const ERASE: [u8; 2] = [0x08, 0x7f];
const ERASE_ALL: u8 = 0x15;

/// Asks for the passphrase of something. Nothing where nobody is asked: standard input or standard error is no terminal.
///
/// # Errors
/// The terminal fails, or whoever sits there gives up.
pub fn ask(of: &str) -> io::Result<Option<Zeroizing<String>>> {
    with_terminal(|terminal| read(terminal, &format!("Passphrase of {of}: ")))
}

/// Asks for a new one twice, so that it is not one that was mistyped.
///
/// # Errors
/// As for [`ask`]; or it is empty, or another one the second time.
pub fn ask_new(of: &str) -> io::Result<Option<Zeroizing<String>>> {
    with_terminal(|terminal| {
        let first = read(terminal, &format!("New passphrase of {of}: "))?;
        if first.is_empty() {
            return Err(io::Error::other("a passphrase is not empty"));
        }
        let again = read(terminal, "The same again: ")?;
        if first != again {
            return Err(io::Error::other("the second passphrase was another one than the first"));
        }
        Ok(first)
    })
}

fn with_terminal<T>(ask: impl FnOnce(&Stdin) -> io::Result<T>) -> io::Result<Option<T>> {
    let terminal = io::stdin();
    if !terminal.is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let _silent = Silent::make(&terminal)?;
    ask(&terminal).map(Some)
}

/// A terminal that shows nothing of what is typed, and gives each key as it comes: an interrupt, too, which would leave it silent. It is as before when this
/// is dropped.
struct Silent<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> Silent<'a> {
    fn make(terminal: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed before was shown.
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

fn read(terminal: &Stdin, prompt: &str) -> io::Result<Zeroizing<String>> {
    let mut out = io::stderr();
    out.write_all(prompt.as_bytes())?;
    out.flush()?;
    // Not through standard input's buffer, which nobody wipes.
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

/// A line of what is typed.
fn line(mut next: impl FnMut() -> io::Result<Option<u8>>) -> io::Result<Zeroizing<String>> {
    // As long as it can become: another place in memory would not be wiped.
    let mut typed = Zeroizing::new(Vec::with_capacity(PASSPHRASE_BYTES_MAX));
    loop {
        match next()? {
            None | Some(b'\n' | b'\r') => break,
            Some(END) if typed.is_empty() => break,
            Some(END) => {}
            Some(INTERRUPT) => return Err(io::Error::new(io::ErrorKind::Interrupted, "given up")),
            Some(ERASE_ALL) => typed.clear(),
            Some(key) if ERASE.contains(&key) => {
                // A whole character.
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
        std::str::from_utf8(&typed).map_err(|_| io::Error::other("what was typed is no UTF-8 text"))?;
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
    fn what_is_typed_is_read_and_can_be_mended() {
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
        assert_eq!(typed(b"a\x03"), Err("given up".to_owned()));
        assert_eq!(typed(b"\xff\n"), Err("what was typed is no UTF-8 text".to_owned()));
        assert!(typed(&[b'a'; PASSPHRASE_BYTES_MAX]).is_ok());
        assert!(typed(&[b'a'; PASSPHRASE_BYTES_MAX + 1]).unwrap_err().contains("at most"));
    }
}
