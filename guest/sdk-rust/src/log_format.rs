//! The formats of [`log!`](crate::log!), which the compiler reads: a module has only the texts between the values.
//!
//! `core::fmt` calls its functions through pointers, and pads by loops without a limit that weir knows, so its code has no bound.

/// The place of a value in a format.
struct Place {
    start: usize,
    end: usize,
    is_hex: bool,
}

/// Finds the first place of a value from an offset on.
const fn place_from(format: &[u8], from: usize) -> Option<Place> {
    let mut at = from;
    while at < format.len() {
        let is_doubled = at + 1 < format.len() && format[at] == format[at + 1];
        match format[at] {
            b'{' | b'}' if is_doubled => at += 2,
            b'{' => {
                if at + 1 < format.len() && format[at + 1] == b'}' {
                    return Some(Place { start: at, end: at + 2, is_hex: false });
                }
                let is_hex = at + 3 < format.len()
                    && format[at + 1] == b':'
                    && format[at + 2] == b'x'
                    && format[at + 3] == b'}';
                assert!(
                    is_hex,
                    "log! has {{}} and {{:x}} alone, with the values behind the text: for others write! to a Line, which has no bound"
                );
                return Some(Place { start: at, end: at + 4, is_hex });
            }
            b'}' => panic!("a }} of a text is written twice"),
            _ => at += 1,
        }
    }
    None
}

/// Returns the text before the value number `index`, with its doubled braces; behind the last value, the rest.
pub const fn log_text(format: &'static str, index: usize) -> &'static [u8] {
    let format = format.as_bytes();
    let (mut start, mut before) = (0, 0);
    loop {
        let (end, next) = match place_from(format, start) {
            Some(Place { start, end, .. }) => (start, end),
            None => (format.len(), format.len()),
        };
        if before == index {
            return format.split_at(end).0.split_at(start).1;
        }
        (start, before) = (next, before + 1);
    }
}

/// Returns true if the value number `index` is written in hexadecimal digits.
pub const fn log_is_hex(format: &str, index: usize) -> bool {
    let (mut start, mut before) = (0, 0);
    while let Some(place) = place_from(format.as_bytes(), start) {
        if before == index {
            return place.is_hex;
        }
        (start, before) = (place.end, before + 1);
    }
    false
}

/// Stops the compiler if a format has another number of values than `log!` got.
pub const fn log_check(format: &str, values: usize) {
    let (mut start, mut places) = (0, 0);
    while let Some(place) = place_from(format.as_bytes(), start) {
        (start, places) = (place.end, places + 1);
    }
    assert!(places == values, "log! needs a value for each {{}}, and no others");
}

/// Returns the length of a text without the second of doubled braces.
pub const fn log_text_len(text: &[u8]) -> usize {
    let (mut at, mut len) = (0, 0);
    while at < text.len() {
        at += if matches!(text[at], b'{' | b'}') { 2 } else { 1 };
        len += 1;
    }
    len
}

/// Returns a text without the second of doubled braces.
pub const fn log_plain_text<const LEN: usize>(text: &[u8]) -> [u8; LEN] {
    let mut plain = [0; LEN];
    let (mut at, mut len) = (0, 0);
    while len < LEN {
        plain[len] = text[at];
        at += if matches!(text[at], b'{' | b'}') { 2 } else { 1 };
        len += 1;
    }
    plain
}
