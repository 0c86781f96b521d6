//! The differences between the lines that a test expects and those of a module.

use serde_json::Value;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::fmt::Write;
use weir_units::Escape as _;

/// Lines without a difference that are shown around one.
const CONTEXT: usize = 2;
/// Most lines of a difference that are shown.
const SHOWN_MAX: usize = 60;

/// Returns the differences, a line each: `-` for what is expected, `+` for what the module does. Of a line that has changed,
/// the members follow that differ. Returns `None` if there is no difference.
pub(super) fn diff(expected: &[String], actual: &[String], paint: bool) -> Option<String> {
    if expected == actual {
        return None;
    }
    // The file of a test can be from a stranger, and have characters that control a terminal.
    let shown = |lines: &[String]| lines.iter().map(|line| line.escaped().to_string()).collect::<Vec<_>>();
    let (expected, actual) = (shown(expected), shown(actual));
    let mut lines = Vec::new();
    let color =
        |code: &str, text: String| if paint { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text };
    let ops = capture_diff_slices(Algorithm::Myers, &expected, &actual);
    for (i, op) in ops.iter().enumerate() {
        match *op {
            DiffOp::Equal { old_index, len, .. } => {
                let kept = expected.get(old_index..old_index + len).unwrap_or_default();
                let after = if i == 0 { 0 } else { CONTEXT.min(len) };
                let before = if i + 1 == ops.len() { 0 } else { CONTEXT.min(len - after) };
                lines.extend(kept.iter().take(after).map(|line| format!("  {line}")));
                if len > after + before {
                    lines.push(color("2", format!("  … {} equal", len - after - before)));
                }
                lines.extend(kept.iter().skip(len - before).map(|line| format!("  {line}")));
            }
            DiffOp::Delete { old_index, old_len, .. } => {
                let gone = expected.iter().skip(old_index).take(old_len);
                lines.extend(gone.map(|line| color("31", format!("- {line}"))));
            }
            DiffOp::Insert { new_index, new_len, .. } => {
                let new = actual.iter().skip(new_index).take(new_len);
                lines.extend(new.map(|line| color("32", format!("+ {line}"))));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                for k in 0..old_len.max(new_len) {
                    let old = expected.get(old_index + k).filter(|_| k < old_len);
                    let new = actual.get(new_index + k).filter(|_| k < new_len);
                    lines.extend(old.map(|line| color("31", format!("- {line}"))));
                    lines.extend(new.map(|line| color("32", format!("+ {line}"))));
                    if let (Some(old), Some(new)) = (old, new) {
                        lines
                            .extend(changed_members(old, new).map(|text| color("33", format!("  ^ {text}"))));
                    }
                }
            }
        }
    }
    let rest = lines.len().saturating_sub(SHOWN_MAX);
    lines.truncate(SHOWN_MAX);
    let mut text = lines.join("\n");
    if rest > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  … {rest} more lines");
    }
    Some(text)
}

/// Returns the members of two rows of one stream that differ; `None` for other lines.
fn changed_members(old: &str, new: &str) -> Option<String> {
    let (Ok(Value::Object(old)), Ok(Value::Object(new))) =
        (serde_json::from_str::<Value>(old), serde_json::from_str::<Value>(new))
    else {
        return None;
    };
    if old.keys().ne(new.keys()) || old.get("stream") != new.get("stream") {
        return None;
    }
    let changed = old.iter().zip(new.values()).filter(|((_, old), new)| old != new);
    let changed: Vec<String> = changed.map(|((key, old), new)| format!("{key}: {old} → {new}")).collect();
    // With many changes it is another row.
    (!changed.is_empty() && changed.len() * 2 <= old.len()).then(|| changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn equal_lines_have_no_differences() {
        assert_eq!(diff(&lines(&["a", "b"]), &lines(&["a", "b"]), false), None);
        assert_eq!(diff(&[], &[], true), None);
    }

    #[test]
    fn changed_rows_show_the_members_that_differ() {
        let row = |n: u32| format!("{{\"module\":\"m\",\"stream\":\"s\",\"host\":\"a\",\"packets\":{n}}}");
        let expected: Vec<String> = (0..9).map(row).collect();
        let mut actual = expected.clone();
        actual[5] = row(50);
        actual.push("{\"drop\":3}".to_owned());
        let text = diff(&expected, &actual, false).unwrap();
        let shown: Vec<&str> = text.lines().collect();
        assert_eq!(shown[0], "  … 3 equal");
        assert_eq!(shown[3], format!("- {}", row(5)));
        assert_eq!(shown[5], "  ^ packets: 5 → 50");
        assert_eq!(*shown.last().unwrap(), "+ {\"drop\":3}");
        assert!(diff(&expected, &actual, true).unwrap().contains("\u{1b}[31m- "));
    }

    #[test]
    fn control_characters_of_a_tests_file_are_shown_as_escapes() {
        let text = diff(&lines(&["{\"a\":\"\u{1b}[2J\"}"]), &[], false).unwrap();
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J"), "{text}");
    }

    #[test]
    fn a_long_difference_is_shortened() {
        let expected: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let text = diff(&expected, &[], false).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (61, Some("  … 940 more lines")));
    }
}
