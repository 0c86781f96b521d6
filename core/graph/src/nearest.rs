//! The existing name that a misspelt name probably means.

/// Returns the candidate with the smallest edit distance, if it is similar enough: at most a third of its characters
/// differ. Takes time proportional to the characters of all candidates times those of the name.
pub fn nearest<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let allowed = name.chars().count() / 3;
    let wanted: Vec<char> = name.chars().flat_map(char::to_lowercase).take(NAME_CHARS_MAX).collect();
    let exact: Vec<char> = name.chars().take(NAME_CHARS_MAX).collect();
    let mut best: Option<(usize, usize, &str)> = None;
    for candidate in candidates {
        if candidate == name || candidate.len().abs_diff(name.len()) > allowed * 4 {
            continue;
        }
        let chars: Vec<char> = candidate.chars().flat_map(char::to_lowercase).take(NAME_CHARS_MAX).collect();
        let far = distance(&wanted, &chars);
        if far > allowed || best.is_some_and(|(least, ..)| far > least) {
            continue;
        }
        // Of candidates that differ in capitals only, the one with the same capitals.
        let chars: Vec<char> = candidate.chars().take(NAME_CHARS_MAX).collect();
        let found = (far, distance(&exact, &chars), candidate);
        if best.is_none_or(|best| found < best) {
            best = Some(found);
        }
    }
    best.map(|(.., candidate)| candidate.to_owned())
}

/// Returns the nearest candidate as the end of a message; nothing if none is similar enough.
pub(crate) fn suggestion<'n>(name: &str, candidates: impl IntoIterator<Item = &'n str>) -> String {
    nearest(name, candidates).map_or(String::new(), |name| format!(" (did you mean '{name}'?)"))
}

/// The characters of a name that are compared.
const NAME_CHARS_MAX: usize = 64;

/// Returns the number of characters to insert, remove, replace or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, one) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let mut least = (above[j] + usize::from(one != other)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *one == b[j - 1] && a[i - 1] == *other {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_found_if_it_is_similar() {
        let names = ["Queue", "Discard", "Counter", "IPClassifier", "Classifier"];
        for (name, expected) in [
            ("Queu", Some("Queue")),
            ("queue", Some("Queue")),
            ("Discrad", Some("Discard")),
            ("IpClasifier", Some("IPClassifier")),
            ("Tee", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names).as_deref(), expected, "{name}");
        }
    }
}
