//! The substitution of `$variable` and `$(handler …)` in texts of scripts.

/// The most nested references.
const DEPTH_MAX: u32 = 10;

/// A place that knows the values of references.
pub trait ScriptValues {
    /// Returns the value of a variable; `None` if it is not defined.
    fn variable(&mut self, name: &str) -> Option<String>;

    /// Returns the value of a handler; `None` if it has none, which is reported.
    fn handler(&mut self, call: &str) -> Option<String>;

    /// Takes note that a text of this length was made or searched. Returns false if there is no room for more.
    fn charge(&mut self, length: usize) -> bool;
}

/// Replaces references in a text. In double quotes their values are escaped; with `quotes` they are quoted elsewhere.
pub fn expand(text: &str, quotes: bool, values: &mut dyn ScriptValues) -> String {
    nested(text, quotes, 0, values)
}

/// A reference in a text.
struct Reference {
    /// The bytes of the reference, with its `$`.
    end: usize,
    /// The bytes between its brackets.
    inner: std::ops::Range<usize>,
    is_handler: bool,
    /// There are references in it.
    is_nested: bool,
}

/// Returns the reference at a `$`.
///
/// # Errors
///
/// Fails with the bytes that were searched for its end in vain, if there is none.
fn reference(bytes: &[u8], at: usize) -> Result<Reference, usize> {
    let first = at + 1;
    let rest = bytes.get(first..).unwrap_or_default();
    match rest.first().ok_or(0_usize)? {
        b'{' => {
            let length = rest.iter().position(|byte| *byte == b'}').ok_or(rest.len())?;
            let inner = first + 1..first + length;
            let is_nested = bytes[inner.clone()].contains(&b'$');
            Ok(Reference { end: first + length + 1, inner, is_handler: false, is_nested })
        }
        b'(' => {
            let (mut level, mut quote, mut is_nested) = (0, 0, false);
            let mut here = first;
            while here < bytes.len() {
                match bytes[here] {
                    b'(' if quote == 0 => level += 1,
                    b')' if quote == 0 => level -= 1,
                    byte @ (b'"' | b'\'') if quote == 0 => quote = byte,
                    byte @ (b'"' | b'\'') if quote == byte => quote = 0,
                    b'\\' if quote != b'\'' => here += 1,
                    b'$' if quote != b'\'' => is_nested = true,
                    _ => {}
                }
                here += 1;
                if level == 0 {
                    return Ok(Reference {
                        end: here,
                        inner: first + 1..here - 1,
                        is_handler: true,
                        is_nested,
                    });
                }
            }
            Err(rest.len())
        }
        b'?' | b'#' | b'$' => {
            Ok(Reference { end: first + 1, inner: first..first + 1, is_handler: false, is_nested: false })
        }
        byte if byte.is_ascii_alphanumeric() || *byte == b'_' => {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let length = bytes[first..].iter().take_while(|byte| is_name(byte)).count();
            Ok(Reference {
                end: first + length,
                inner: first..first + length,
                is_handler: false,
                is_nested: false,
            })
        }
        _ => Err(0),
    }
}

fn nested(text: &str, quotes: bool, depth: u32, values: &mut dyn ScriptValues) -> String {
    let bytes = text.as_bytes();
    if depth > DEPTH_MAX || !bytes.contains(&b'$') {
        return text.to_owned();
    }
    let mut out = String::new();
    let (mut copied, mut at, mut quote) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 2,
            byte @ (b'"' | b'\'') => {
                if quote == 0 {
                    quote = byte;
                } else if quote == byte {
                    quote = 0;
                }
                at += 1;
            }
            b'$' if quote != b'\'' => {
                let Reference { end, inner, is_handler, is_nested } = match reference(bytes, at) {
                    Ok(found) => found,
                    // Each `$(` without an end is searched up to the end of the text.
                    Err(searched) if !values.charge(searched) => return out,
                    Err(_) => {
                        at += 1;
                        continue;
                    }
                };
                let name = &text[inner];
                let made = if is_nested { nested(name, false, depth + 1, values) } else { name.to_owned() };
                let value = if is_handler { values.handler(&made) } else { values.variable(&made) };
                // A reference without a value stays, with what is in it replaced.
                let shown = match value {
                    Some(value) if quote == b'"' || quotes && quote == 0 => {
                        let quoted = weir_graph::arguments::text::quote(value.as_bytes());
                        if quote == 0 { quoted } else { quoted[1..quoted.len() - 1].to_owned() }
                    }
                    Some(value) => value,
                    None => format!(
                        "{}{made}{}",
                        &text[at..end][..1 + usize::from(end - at > 1 + name.len())],
                        if end - at > 1 + name.len() { &text[end - 1..end] } else { "" }
                    ),
                };
                if !values.charge(shown.len() + at - copied) {
                    return out;
                }
                out.push_str(&text[copied..at]);
                out.push_str(&shown);
                (copied, at) = (end, end);
            }
            _ => at += 1,
        }
    }
    out.push_str(&text[copied..]);
    out
}
