//! Texts of a picture: their width, and their shortening.

/// The width of a character in thousandths of the size of the font, in a wide sans-serif font. A narrower font leaves
/// some room.
fn character_width(c: char) -> i64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' => 340,
        ' ' | 'f' | 'r' | 't' | 'I' | 'J' | '(' | ')' | '[' | ']' | '/' | '-' => 420,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1000,
        'A'..='Z' => 740,
        c if c.is_ascii() => 640,
        _ => 1100,
    }
}

/// Returns the width of a text in pixels, at most that of any font that is common.
pub(super) fn width(text: &str, font_size: i64, is_bold: bool) -> i64 {
    let sum: i64 = text.chars().map(character_width).sum();
    sum * font_size * if is_bold { 11 } else { 10 } / 10_000 + 1
}

/// Returns a text of at most `most` characters, with a mark in place of those in the middle that are left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (front, back) = (most / 2, most - most / 2 - 1);
    text.chars().take(front).chain(['…']).chain(text.chars().skip(count - back)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_lose_their_middle() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefgh", 6), "abc…gh");
        assert_eq!(shortened("äöüäöüäö", 5), "äö…äö");
    }
}
