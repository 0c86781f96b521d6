//! The lexer: splits a filter's text into words, numbers, addresses and signs.
//!
//! As in libpcap, the longest token wins, so `len-1` is a name and `len - 1` a difference. Among equally long tokens
//! the more specific kind wins.

use crate::error::{FilterError, FilterFault};
use crate::word::{Word, named_number, word};
use core::net::Ipv6Addr;

/// The most bytes of an address in a text. An IPv6 address can end in four decimal numbers with many leading zeros.
const ADDRESS_BYTES_MAX: usize = 96;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The offset in the text, in bytes.
    pub(crate) at: usize,
    /// The length in bytes.
    pub(crate) len: usize,
    pub(crate) kind: TokenKind,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word(Word),
    Number(u32),
    /// A name that is not a reserved word.
    Name(String),
    /// Two to four numbers with dots between them.
    Dotted(String),
    Ip6(Ipv6Addr),
    Mac([u8; 6]),
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    Colon,
    Plus,
    Minus,
    Times,
    Slash,
    Percent,
    Ampersand,
    Bar,
    Caret,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The signs of the language, longer ones first.
const SIGNS: &[(&str, TokenKind)] = &[
    ("&&", TokenKind::Word(Word::And)),
    ("||", TokenKind::Word(Word::Or)),
    (">=", TokenKind::GreaterOrEqual),
    ("<=", TokenKind::LessOrEqual),
    ("!=", TokenKind::NotEqual),
    ("==", TokenKind::Equal),
    ("<<", TokenKind::ShiftLeft),
    (">>", TokenKind::ShiftRight),
    ("!", TokenKind::Word(Word::Not)),
    ("(", TokenKind::Open),
    (")", TokenKind::Close),
    ("[", TokenKind::OpenIndex),
    ("]", TokenKind::CloseIndex),
    (":", TokenKind::Colon),
    ("+", TokenKind::Plus),
    ("-", TokenKind::Minus),
    ("*", TokenKind::Times),
    ("/", TokenKind::Slash),
    ("%", TokenKind::Percent),
    ("&", TokenKind::Ampersand),
    ("|", TokenKind::Bar),
    ("^", TokenKind::Caret),
    ("=", TokenKind::Equal),
    ("<", TokenKind::Less),
    (">", TokenKind::Greater),
];

/// Splits a text into tokens.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if matches!(first, ' ' | '\r' | '\n' | '\t') {
            at += 1;
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        let (kind, len) = token(rest, first).map_err(|(fault, len)| FilterError { at, len, fault })?;
        tokens.push(Token { at, len, kind });
        at += len;
    }
    Ok(tokens)
}

/// The first token of a text, and its length. `first` is the text's first character. An error has the length of the
/// faulty text.
fn token(rest: &str, first: char) -> Result<(TokenKind, usize), (FilterFault, usize)> {
    if !first.is_ascii_alphanumeric()
        && let Some((sign, kind)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign))
        && !(first == ':' && rest.starts_with("::"))
    {
        return Ok((kind.clone(), sign.len()));
    }
    if first == '\\' {
        let end = rest.find(|c| " !()\n\t".contains(c)).unwrap_or(rest.len());
        return match rest.get(1..end) {
            Some(name) if !name.is_empty() => Ok((TokenKind::Name(name.to_owned()), end)),
            _ => Err((FilterFault::Character(first), 1)),
        };
    }
    if first == '$' {
        let why = "the sign begins the address of an ARCnet host, and weir does not read ARCnet captures";
        return Err((FilterFault::Unsupported { word: "$", why }, 1));
    }
    let name = name_len(rest);
    // An Ethernet address is preferred to a name of the same length, because it is more specific.
    let head: &str = rest.get(..rest.len().min(ADDRESS_BYTES_MAX)).unwrap_or_else(|| ascii_head(rest));
    if let Some((mac, len)) = mac(head)
        && len >= name
        && ip6_len(head) <= len
    {
        return Ok((TokenKind::Mac(mac), len));
    }
    let (number, dotted, ip6) = (number_len(rest), dotted_len(rest), ip6_len(head));
    let colons = invalid_mac_len(head);
    let longest = name.max(number).max(dotted).max(ip6).max(colons);
    let text = rest.get(..longest).unwrap_or_default();
    if longest == 0 {
        return Err((FilterFault::Character(first), first.len_utf8()));
    }
    if word(text).is_none() && number == longest {
        return parse_number(text)
            .map(|value| (TokenKind::Number(value), longest))
            .map_err(|fault| (fault, longest));
    }
    if dotted == longest {
        return Ok((TokenKind::Dotted(text.to_owned()), longest));
    }
    if ip6 == longest {
        let fault = FilterFault::Address { text: text.to_owned(), what: "an IPv6 address" };
        return text.parse().map(|address| (TokenKind::Ip6(address), longest)).map_err(|_| (fault, longest));
    }
    if colons == longest {
        let what = "an Ethernet address; it has six bytes";
        return Err((FilterFault::Address { text: text.to_owned(), what }, longest));
    }
    Ok((
        word(text)
            .map(TokenKind::Word)
            .or_else(|| named_number(text).map(TokenKind::Number))
            .unwrap_or_else(|| TokenKind::Name(text.to_owned())),
        longest,
    ))
}

/// The ASCII prefix of a text, at most as long as an address.
fn ascii_head(rest: &str) -> &str {
    let end = rest.bytes().take(ADDRESS_BYTES_MAX).take_while(u8::is_ascii).count();
    rest.get(..end).unwrap_or_default()
}

/// The number of bytes at the begin of a text that all satisfy a condition.
fn count(text: &[u8], condition: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| condition(byte)).count()
}

/// The length of the name at the begin of a text; 0 if there is none. A name begins with a letter or digit, and ends
/// with a letter, a digit or a dot.
fn name_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let end = count(bytes, |&b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let kept = bytes.iter().take(end).rposition(|&b| b != b'-' && b != b'_');
    kept.map_or(0, |last| last + 1)
}

/// The length of the number at the begin of a text; 0 if there is none.
fn number_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    if let [b'0', b'x' | b'X', digits @ ..] = bytes {
        let digits = count(digits, u8::is_ascii_hexdigit);
        if digits > 0 {
            return 2 + digits;
        }
    }
    count(bytes, u8::is_ascii_digit)
}

/// The length of the two to four numbers with dots between them at the begin of a text; 0 if there are none.
fn dotted_len(rest: &str) -> usize {
    let (mut at, mut numbers, mut end) = (0, 0, 0);
    while numbers < 4 {
        let len = rest.get(at..).map_or(0, number_len);
        if len == 0 {
            break;
        }
        (at, numbers) = (at + len, numbers + 1);
        if numbers > 1 {
            end = at;
        }
        if rest.as_bytes().get(at) != Some(&b'.') {
            break;
        }
        at += 1;
    }
    end
}

/// The length of the longest prefix of a text that has the form of an IPv6 address; 0 if there is none.
fn ip6_len(head: &str) -> usize {
    let run = count(head.as_bytes(), |&b| b.is_ascii_hexdigit() || b":.xX".contains(&b));
    (2..=run).rev().find(|&len| head.get(..len).is_some_and(is_ip6)).unwrap_or(0)
}

/// Returns true if a text has the form of an IPv6 address: up to eight groups, `::` at most once, and optionally four
/// decimal numbers at the end.
fn is_ip6(text: &str) -> bool {
    let groups = |text: &str, may_end_in_ip4: bool| -> Option<(usize, bool)> {
        if text.is_empty() {
            return Some((0, false));
        }
        let (mut groups, mut ip4) = (0, false);
        let mut parts = text.split(':').peekable();
        while let Some(part) = parts.next() {
            let is_group = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
            if is_group {
                groups += 1;
            } else if may_end_in_ip4
                && parts.peek().is_none()
                && part.split('.').count() == 4
                && dotted_len(part) == part.len()
            {
                ip4 = true;
            } else {
                return None;
            }
        }
        Some((groups, ip4))
    };
    match text.split_once("::") {
        Some((before, after)) => match (groups(before, false), groups(after, true)) {
            (Some((before, _)), Some((after, ip4))) => before + after <= if ip4 { 5 } else { 7 },
            _ => false,
        },
        None => matches!(groups(text, true), Some((8, false) | (6, true))),
    }
}

/// The longest prefix of a text that is an Ethernet address, and its length. The address is written as six bytes with
/// `:`, `-` or `.` between them, as three groups of four digits with dots between them, or as twelve digits.
fn mac(head: &str) -> Option<([u8; 6], usize)> {
    let bytes = head.as_bytes();
    let mut best: Option<([u8; 6], usize)> = None;
    let mut keep_longest = |found: Option<([u8; 6], usize)>| {
        if let Some((mac, len)) = found
            && best.is_none_or(|(_, longest)| len > longest)
        {
            best = Some((mac, len));
        }
    };
    for separator in [b':', b'-', b'.'] {
        keep_longest(six_bytes(bytes, separator));
    }
    keep_longest(twelve_digits(bytes, 4, true));
    keep_longest(twelve_digits(bytes, 12, false));
    best
}

/// The value of a hexadecimal digit.
fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Parses an Ethernet address of six bytes with one or two hexadecimal digits each.
fn six_bytes(bytes: &[u8], separator: u8) -> Option<([u8; 6], usize)> {
    let (mut mac, mut at) = ([0; 6], 0);
    for (i, byte) in mac.iter_mut().enumerate() {
        if i > 0 {
            (bytes.get(at) == Some(&separator)).then_some(())?;
            at += 1;
        }
        *byte = hex(*bytes.get(at)?)?;
        at += 1;
        if let Some(low) = bytes.get(at).copied().and_then(hex) {
            *byte = *byte << 4 | low;
            at += 1;
        }
    }
    Some((mac, at))
}

/// Parses an Ethernet address of twelve hexadecimal digits; if `with_dots` is true, with a dot after every `group`
/// digits.
fn twelve_digits(bytes: &[u8], group: usize, with_dots: bool) -> Option<([u8; 6], usize)> {
    let (mut mac, mut at) = ([0; 6], 0);
    for i in 0..12 {
        if with_dots && i > 0 && i % group == 0 {
            (bytes.get(at) == Some(&b'.')).then_some(())?;
            at += 1;
        }
        let byte: &mut u8 = mac.get_mut(i / 2)?;
        *byte = *byte << 4 | hex(*bytes.get(at)?)?;
        at += 1;
    }
    Some((mac, at))
}

/// The length of the longest prefix that looks like an unfinished Ethernet address: at least two bytes in hexadecimal,
/// each followed by colons.
fn invalid_mac_len(head: &str) -> usize {
    let bytes = head.as_bytes();
    let (mut at, mut groups, mut end) = (0, 0, 0);
    loop {
        let digits = count(bytes.get(at..).unwrap_or_default(), u8::is_ascii_hexdigit);
        let colons = count(bytes.get(at + digits..).unwrap_or_default(), |&b| b == b':');
        if !(1..=2).contains(&digits) || colons == 0 {
            return end;
        }
        (at, groups) = (at + digits + colons, groups + 1);
        if groups > 1 {
            end = at;
        }
    }
}

/// Parses a decimal number, an octal one that begins with 0, or a hexadecimal one that begins with 0x.
fn parse_number(text: &str) -> Result<u32, FilterFault> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..).unwrap_or_default(), 16),
        [b'0', _, ..] => (text.get(1..).unwrap_or_default(), 8),
        _ => (text, 10),
    };
    let why = if radix == 8 && digits.contains(['8', '9']) {
        "a number that begins with 0 is octal, and has no digits over 7"
    } else {
        "the number has more than 32 bits"
    };
    u32::from_str_radix(digits, radix).map_err(|_| FilterFault::Number { text: escaped_excerpt(text), why })
}

/// A part of a filter's text for error messages, escaped and shortened.
pub(crate) fn escaped_excerpt(text: &str) -> String {
    let mut excerpt: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        excerpt += "...";
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokens(text).unwrap().into_iter().map(|token| token.kind).collect()
    }

    fn name(text: &str) -> TokenKind {
        TokenKind::Name(text.to_owned())
    }

    #[test]
    fn the_longest_token_wins_and_then_the_more_specific_one() {
        let dotted = |text: &str| TokenKind::Dotted(text.to_owned());
        assert_eq!(kinds("10"), [TokenKind::Number(10)]);
        assert_eq!(kinds("0x1F 017"), [TokenKind::Number(31), TokenKind::Number(15)]);
        assert_eq!(kinds("1.2.3.4"), [dotted("1.2.3.4")]);
        assert_eq!(kinds("1.2.3.4.5"), [name("1.2.3.4.5")]);
        assert_eq!(kinds("1.2.3.4.5.6"), [TokenKind::Mac([1, 2, 3, 4, 5, 6])]);
        assert_eq!(kinds("00:11:22:33:44:5f"), [TokenKind::Mac([0, 0x11, 0x22, 0x33, 0x44, 0x5f])]);
        assert_eq!(kinds("dead.beef.cafe"), [TokenKind::Mac([0xde, 0xad, 0xbe, 0xef, 0xca, 0xfe])]);
        assert_eq!(kinds("123456789012"), [TokenKind::Mac([0x12, 0x34, 0x56, 0x78, 0x90, 0x12])]);
        assert_eq!(kinds("fd00::1"), [TokenKind::Ip6("fd00::1".parse().unwrap())]);
        assert_eq!(kinds("::"), [TokenKind::Ip6(Ipv6Addr::UNSPECIFIED)]);
        assert_eq!(kinds("::ffff:1.2.3.4"), [TokenKind::Ip6("::ffff:1.2.3.4".parse().unwrap())]);
        assert_eq!(kinds("len-1"), [name("len-1")]);
        assert_eq!(kinds("len - 1"), [TokenKind::Word(Word::Length), TokenKind::Minus, TokenKind::Number(1)]);
        assert_eq!(kinds("80-90"), [name("80-90")]);
        assert_eq!(kinds("tcp-syn"), [TokenKind::Number(2)]);
        assert_eq!(kinds("\\tcp"), [name("tcp")]);
        assert_eq!(kinds("ip[2:2]>=1").len(), 8);
        assert_eq!(kinds("a ::g::").len(), 4);
        assert_eq!(
            kinds("!a||b"),
            [TokenKind::Word(Word::Not), name("a"), TokenKind::Word(Word::Or), name("b")]
        );
    }

    #[test]
    fn an_invalid_token_is_an_error_at_its_place() {
        for (text, at, len) in [("udp \u{e9}", 4, 2), ("1:2:3", 0, 4), ("ip \\ ", 3, 1), ("port 089", 5, 3)] {
            let error = tokens(text).unwrap_err();
            assert_eq!((error.at, error.len), (at, len), "{text}: {error}");
        }
        assert!(tokens("port 4294967296").is_err() && tokens("port 4294967295").is_ok());
        assert!(tokens("$00").is_err() && tokens("ip # udp").is_err() && tokens("_a").is_err());
    }
}
