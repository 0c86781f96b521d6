//! Functions of scripts on numbers and formats.

use super::machine::TEXT_MAX;
use std::cmp::Ordering;
use std::fmt::Write as _;
use weir_graph::arguments::text::{shift_word, split_words, unquote};
use weir_graph::engine::Reason;

/// Significant digits of a decimal number.
const DIGITS: i32 = 12;

/// The greatest width and precision of a format.
const WIDTH_MAX: usize = 4096;

fn integer(word: &str) -> Option<i64> {
    crate::values::read(word).ok()
}

fn decimal(word: &str) -> Option<f64> {
    crate::values::read(word).ok()
}

/// A number of a script.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Integer(i64),
    Decimal(f64),
}

impl Number {
    fn read(word: &str) -> Option<Self> {
        integer(word).map(Number::Integer).or_else(|| decimal(word).map(Number::Decimal))
    }

    fn decimal(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Decimal(value) => value,
        }
    }

    fn text(self) -> String {
        match self {
            Number::Integer(value) => value.to_string(),
            Number::Decimal(value) => general(value),
        }
    }
}

/// Returns the shorter of a plain and a scientific notation, with twelve significant digits.
pub fn general(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let precision = usize::try_from(DIGITS - 1).unwrap_or(0);
    let scientific = format!("{value:.precision$e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", short(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
    short(&format!("{value:.decimals$}"))
}

/// Returns the value of `add`, `sub`, `mul`, `div`, `idiv`, `min` or `max` of a list of numbers.
#[allow(clippy::cast_possible_truncation, reason = "the functions are defined so, as in Click")]
pub fn arithmetic(name: &str, list: &str) -> Result<String, Reason> {
    let mut sum: Option<Number> = None;
    for word in split_words(list) {
        let number = Number::read(word).ok_or_else(|| format!("'{word}' is no number"))?;
        let is_division = matches!(name, "div" | "idiv");
        sum = Some(match (sum, number) {
            (None, number) if is_division => Number::Decimal(number.decimal()),
            (None, number) => number,
            (Some(Number::Integer(a)), Number::Integer(b)) if !is_division => Number::Integer(match name {
                "add" => a.wrapping_add(b),
                "sub" => a.wrapping_sub(b),
                "mul" => a.wrapping_mul(b),
                "min" => a.min(b),
                _ => a.max(b),
            }),
            (Some(a), b) => {
                let (a, b) = (a.decimal(), b.decimal());
                Number::Decimal(match name {
                    "add" => a + b,
                    "sub" => a - b,
                    "mul" => a * b,
                    "min" => a.min(b),
                    "max" => a.max(b),
                    _ => a / b,
                })
            }
        });
    }
    let sum = sum.unwrap_or(Number::Integer(i64::from(!matches!(name, "add" | "sub"))));
    Ok(match name {
        "idiv" => Number::Integer(sum.decimal() as i64),
        _ => sum,
    }
    .text())
}

fn two(words: &str) -> Result<(&str, &str), Reason> {
    let (first, rest) = shift_word(words);
    let (second, rest) = shift_word(rest);
    if second.is_empty() || !rest.is_empty() {
        return Err("expected two values".to_owned());
    }
    Ok((first, second))
}

/// Returns the remainder of two numbers: of integers for `mod`, also of decimal numbers for `rem`.
pub fn remainder(name: &str, words: &str) -> Result<String, Reason> {
    let (first, second) = two(words)?;
    let wrong = || "expected two numbers".to_owned();
    match (Number::read(first).ok_or_else(wrong)?, Number::read(second).ok_or_else(wrong)?) {
        (Number::Integer(_), Number::Integer(0)) => Err("a division by zero".to_owned()),
        (Number::Integer(a), Number::Integer(b)) => Ok(a.wrapping_rem(b).to_string()),
        _ if name == "mod" => Err("expected two integers".to_owned()),
        (a, b) => Ok(general(a.decimal() % b.decimal())),
    }
}

/// Returns the value of `neg` or `abs`.
pub fn signed(name: &str, word: &str) -> Result<String, Reason> {
    let number = Number::read(word).ok_or("expected a number")?;
    Ok(match number {
        Number::Integer(value) if name == "neg" || value < 0 => Number::Integer(value.wrapping_neg()),
        Number::Decimal(value) if name == "neg" => Number::Decimal(-value),
        Number::Decimal(value) => Number::Decimal(value.abs()),
        other => other,
    }
    .text())
}

/// Returns the value of `eq`, `ne`, `lt`, `le`, `gt` or `ge` of two numbers, or of two texts.
pub fn compare(name: &str, words: &str) -> Result<String, Reason> {
    let (first, second) = two(words)?;
    let order = match (Number::read(first), Number::read(second)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => Some(a.cmp(&b)),
        (Some(a), Some(b)) => a.decimal().partial_cmp(&b.decimal()),
        _ => Some(unquote(first).cmp(&unquote(second))),
    };
    let order = order.unwrap_or(Ordering::Less);
    Ok(match name {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    }
    .to_string())
}

/// A conversion of a format, such as `%-05.3x`.
#[derive(Default)]
struct Conversion {
    flags: String,
    width: usize,
    precision: Option<usize>,
    is_short: bool,
}

impl Conversion {
    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// Adds digits behind a sign or prefix, in the width.
    fn number(&self, prefix: &str, digits: &str, out: &mut String) {
        let digits = match self.precision {
            Some(least) => format!("{digits:0>least$}"),
            None if self.has('0') && !self.has('-') => {
                format!("{digits:0>width$}", width = self.width.saturating_sub(prefix.len()))
            }
            None => digits.to_owned(),
        };
        self.pad(&format!("{prefix}{digits}"), out);
    }

    fn pad(&self, text: &str, out: &mut String) {
        let width = self.width;
        _ = match self.has('-') {
            true => write!(out, "{text:<width$}"),
            false => write!(out, "{text:>width$}"),
        };
    }
}

/// Returns a format with the values that follow it, as `printf` has it.
#[allow(clippy::cast_possible_truncation, reason = "the functions are defined so, as in Click")]
pub fn sprintf(words: &str) -> Result<String, Reason> {
    let (format, mut rest) = shift_word(words);
    let format = String::from_utf8_lossy(&unquote(format)).into_owned();
    let mut next = || {
        let (word, after) = shift_word(rest);
        rest = after;
        word
    };
    let mut out = String::new();
    let mut left = format.chars().peekable();
    while let Some(letter) = left.next() {
        // A conversion of a few bytes can be thousands wide.
        if out.len() > TEXT_MAX {
            return Err(format!("the text has more than {TEXT_MAX} bytes"));
        }
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut it = Conversion::default();
        while let Some(flag) = left.next_if(|letter| "0#- +".contains(*letter)) {
            it.flags.push(flag);
        }
        let mut size = |left: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<i64>, Reason> {
            if left.next_if_eq(&'*').is_some() {
                return integer(next()).map(Some).ok_or_else(|| "expected a width".to_owned());
            }
            let mut digits = String::new();
            while let Some(digit) = left.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            Ok(digits.parse().ok())
        };
        let width = size(&mut left)?.unwrap_or(0);
        if width < 0 {
            it.flags.push('-');
        }
        let limit = |size: u64| usize::try_from(size).ok().filter(|size| *size <= WIDTH_MAX);
        let too_wide = || format!("a width is at most {WIDTH_MAX}");
        it.width = limit(width.unsigned_abs()).ok_or_else(too_wide)?;
        if left.next_if_eq(&'.').is_some() {
            let precision = u64::try_from(size(&mut left)?.unwrap_or(0)).map_err(|_| too_wide())?;
            it.precision = Some(limit(precision).ok_or_else(too_wide)?);
        }
        while let Some(letter) = left.next_if(|letter| "hlLq".contains(*letter)) {
            it.is_short |= letter == 'h';
        }
        let wrong = |wanted: &str| format!("expected {wanted}");
        match left.next() {
            Some('%') => out.push('%'),
            Some('s') => {
                let text = String::from_utf8_lossy(&unquote(next())).into_owned();
                let most = it.precision.unwrap_or(usize::MAX);
                it.pad(&text.chars().take(most).collect::<String>(), &mut out);
            }
            Some('d' | 'i') => {
                let value = integer(next()).ok_or_else(|| wrong("an integer"))?;
                let value = if it.is_short { i64::from(value as i16) } else { value };
                let sign = match value < 0 {
                    true => "-",
                    false if it.has('+') => "+",
                    false if it.has(' ') => " ",
                    false => "",
                };
                it.number(sign, &value.unsigned_abs().to_string(), &mut out);
            }
            Some(form @ ('u' | 'x' | 'X' | 'o')) => {
                let word = next();
                let value = crate::values::read::<u64>(word).ok().or(integer(word).map(i64::cast_unsigned));
                let value = value.ok_or_else(|| wrong("an unsigned integer"))?;
                let value = if it.is_short { u64::from(value as u16) } else { value };
                let marks = it.has('#') && value != 0;
                let (prefix, digits) = match form {
                    'x' => (if marks { "0x" } else { "" }, format!("{value:x}")),
                    'X' => (if marks { "0X" } else { "" }, format!("{value:X}")),
                    'o' => (if marks { "0" } else { "" }, format!("{value:o}")),
                    _ => ("", value.to_string()),
                };
                it.number(prefix, &digits, &mut out);
            }
            _ => return Err(wrong("one of the conversions %d %i %u %x %X %o %s %%")),
        }
    }
    if rest.is_empty() { Ok(out) } else { Err("more values than conversions".to_owned()) }
}
