//! The limit that a loop statement has already: a number or a constant, as in `i < 512 && at < end`.

/// The limit of a loop, with the text of the statement around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopLimit {
    before: String,
    text: String,
    after: String,
    /// True if the loop also runs with the limit itself, as in `i <= 31`.
    is_inclusive: bool,
}

impl LoopLimit {
    /// A limit that is the number of iterations, with the text of the statement before and after it.
    pub(super) fn new(before: String, text: &str, after: String) -> Self {
        Self { before, text: text.trim().to_owned(), after, is_inclusive: false }
    }

    /// Returns the limit, as in the source.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of iterations, if the limit is a number.
    pub fn number(&self) -> Option<u64> {
        let digits = self.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = digits.replace('_', "").parse::<u64>().ok()?;
        Some(number.saturating_add(self.is_inclusive.into()))
    }

    /// Returns the statement with this number of iterations as its limit.
    pub fn with(&self, iterations: u64) -> String {
        self.with_text(&iterations.saturating_sub(self.is_inclusive.into()).to_string())
    }

    /// Returns the statement with another text as its limit.
    pub(super) fn with_text(&self, text: &str) -> String {
        [&self.before, text, &self.after].concat()
    }
}

/// Returns the range of the first part of a text that is a number, or a constant in capital letters; `None` for other texts.
fn leading_limit(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let word = text.get(..end)?;
    let is_constant = word.len() > 1 && !word.contains(|c: char| c.is_ascii_lowercase());
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    (is_number || is_constant).then_some(word)
}

/// Returns the limit in a part of a statement: the first number or constant to which `<` compares, and which is a side of its
/// own.
pub fn limit_in(statement: &str, part: &str) -> Option<LoopLimit> {
    let from = statement.find(part)?;
    for (at, _) in part.match_indices('<') {
        let (before, after) = part.split_at_checked(at)?;
        let rest = after.get(1..)?;
        if before.ends_with('<') || rest.starts_with('<') {
            continue;
        }
        let (is_inclusive, right) = rest.strip_prefix('=').map_or((false, rest), |right| (true, right));
        let right = right.trim_start();
        let Some(word) = leading_limit(right) else { continue };
        let behind = right.get(word.len()..)?.trim_start();
        if !behind.is_empty() && !behind.starts_with("&&") && !behind.starts_with(';') {
            continue;
        }
        let begin = from + part.len() - right.len();
        let [before, after] =
            [statement.get(..begin)?, statement.get(begin + word.len()..)?].map(str::to_owned);
        return Some(LoopLimit { before, text: word.to_owned(), after, is_inclusive });
    }
    None
}

/// Returns the limit of a loop in Rust: of `.bounded::<512>()`, `.at_most::<512>()`, `.take(512)`, or of a range, as in `0..512`.
pub fn bound_in_rust(line: &str) -> Option<LoopLimit> {
    let found = [".bounded::<", ".at_most::<", ".take(", ".."].iter().find_map(|begin| {
        let at = line.find(begin)? + begin.len();
        let (before, rest) = line.split_at_checked(at)?;
        let word = leading_limit(rest)?;
        let after = rest.get(word.len()..)?;
        let is_alone = [">", ")", " {"].iter().any(|end| after.starts_with(end));
        is_alone.then(|| LoopLimit::new(before.to_owned(), word, after.to_owned()))
    });
    found.or_else(|| {
        line.strip_prefix("while ").and_then(|condition| limit_in(line, condition.split('{').next()?))
    })
}
