//! Advice in the error message for an unknown key, value or option: its present spelling, or the most similar known
//! word.
//!
//! Earlier spellings are refused everywhere: in configurations, policies, descriptions of sessions, requests and
//! options.

/// A key, value or option whose spelling differs from that of an earlier version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Place of the word: a section of a file, a key that contains further keys, or a command.
    pub place: &'static str,
    /// Earlier spelling, which is refused.
    pub old: &'static str,
    /// Present spelling.
    pub new: &'static str,
}

const fn renamed(place: &'static str, old: &'static str, new: &'static str) -> Renamed {
    Renamed { place, old, new }
}

/// The renamed keys and values of files, requests and `KEY=VALUE` options. A row applies only to places in which the
/// present spelling is known.
pub const KEYS: &[Renamed] = &[
    renamed("[node]", "interval", "ledger_interval"),
    renamed("[node]", "records_bytes", "record_file_size"),
    renamed("[node]", "records_time", "record_file_age"),
    renamed("[isolation]", "first_user", "first_uid"),
    renamed("[cpu]", "receive", "receive_core"),
    renamed("[[link]]", "frame", "frame_max"),
    renamed("cpu", "spare", "borrow"),
    renamed("channel", "sees", "visibility"),
    renamed("channel", "lag", "lag_max"),
    renamed("channel", "late", "on_lag"),
    renamed("on_lag", "lose", "drop"),
    renamed("on_lag", "terminate", "close"),
    renamed("channel", "unattended", "on_no_module"),
    renamed("output", "limit", "reserve_bytes"),
    renamed("offer", "pays", "payer"),
    renamed("use", "of", "session"),
    renamed("use", "pays", "cost_max"),
    renamed("change", "withdraw", "remove_offer"),
    renamed("change", "forgo", "remove_use"),
    renamed("change", "revoke_publish", "remove_publish"),
    renamed("change", "revoke_read", "remove_read"),
    renamed("change", "unshare", "remove_share"),
    renamed("[limit]", "at", "nodes"),
    renamed("[limit]", "kept", "kept-packets"),
    renamed("[limit]", "records", "records-per-second"),
    renamed("[[case]]", "ask", "request"),
    renamed("[[case]]", "by", "requester"),
    renamed("message", "ask", "request"),
    renamed("ledger", "bill", "usage"),
];

/// The renamed options of commands.
pub const OPTIONS: &[Renamed] = &[
    renamed("grant", "--kept", "--kept-packets"),
    renamed("grant", "--records", "--records-per-second"),
    renamed("delegate", "--kept", "--kept-packets"),
    renamed("delegate", "--records", "--records-per-second"),
    renamed("session create", "--kept", "--kept-packets"),
    renamed("session create", "--records", "--records-per-second"),
    renamed("session change", "--kept", "--kept-packets"),
    renamed("session change", "--records", "--records-per-second"),
    renamed("session change", "--withdraw", "--remove-offer"),
    renamed("session change", "--forgo", "--remove-use"),
    renamed("session change", "--revoke-publish", "--remove-publish"),
    renamed("session change", "--revoke-read", "--remove-read"),
    renamed("session change", "--unshare", "--remove-share"),
    renamed("credential explain", "--node-config", "--config"),
];

/// The longest unknown word for which a similar one is searched.
const WORD_MAX: usize = 40;

/// Adds the word that was probably meant to a deserializer's message about an unknown key or value. Returns other
/// messages unchanged.
pub fn with_advice(message: &str) -> String {
    let Some((given, known)) = unknown(message) else { return message.to_owned() };
    let is_meant = |row: &&Renamed| row.old == given && known.contains(&row.new);
    if let Some(row) = KEYS.iter().find(is_meant) {
        return format!("`{given}` is now `{}`", row.new);
    }
    match most_similar(given, &known) {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message.to_owned(),
    }
}

/// Returns the present spelling of an earlier option.
pub fn present_option(old: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|row| row.old == old).map(|row| row.new)
}

/// Splits a message of serde into the unknown word and the known words. `None` for a message about something else.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest =
        ["unknown field `", "unknown variant `"].into_iter().find_map(|kind| message.strip_prefix(kind))?;
    let (given, known) = rest.split_once("`, expected ")?;
    Some((given, known.split('`').skip(1).step_by(2).collect()))
}

/// Returns the known word that differs from `given` by at most two letters. If there is none, returns the only known
/// word that begins or ends with `given`.
fn most_similar<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    if given.len() > WORD_MAX || given.len() < 2 {
        return None;
    }
    let normalised = given.to_lowercase().replace('-', "_");
    let normalise = |word: &str| word.replace('-', "_");
    let distances = known.iter().map(|word| (strsim::levenshtein(&normalise(word), &normalised), *word));
    // The distance must be less than half of the length, since short words are similar to many others.
    let nearest = distances.min().filter(|(distance, _)| *distance <= 2 && 2 * distance < normalised.len());
    nearest.map(|(_, word)| word).or_else(|| {
        let is_part =
            |word: &&&str| normalise(word).starts_with(&normalised) || normalise(word).ends_with(&normalised);
        let mut parts = known.iter().filter(is_part);
        parts.next().filter(|_| parts.next().is_none()).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::NodeConfiguration;
    use crate::control::policy::Policy;
    use crate::control::protocol::{Change, RequestLine};
    use serde::de::DeserializeOwned;

    /// A value of a key that is valid in the example of its place.
    fn value(place: &str, key: &str) -> &'static str {
        match (place, key) {
            ("[node]", "record_file_size") => "\"4 MiB\"",
            ("[node]", _) => "\"2s\"",
            ("[isolation]", _) => "100000",
            ("[cpu]", _) => "0",
            ("[[link]]", _) => "9018",
            ("cpu", _) => "true",
            ("channel", "visibility") => "\"all\"",
            ("channel", "lag_max") => "\"1 MiB\"",
            ("channel", "on_lag" | "on_no_module") => "\"drop\"",
            ("output", _) => "\"25000\"",
            ("offer", _) => "\"caller\"",
            ("use", "cost_max") => "\"50us\"",
            ("use", _) => "\"b\"",
            ("change", "remove_share") => {
                "[\"follow=weir-key:5jfgyy7ctrjavpxvkb5rglwf7gkuo5vox27hxescd3vgsfcg2iwctxsv\"]"
            }
            ("change", _) => "[\"s\"]",
            ("[limit]", "nodes") => "[\"*.example\"]",
            ("[limit]", _) => "7",
            ("[[case]]", "request") => "\"show\"",
            ("[[case]]", _) => "\"mallory\"",
            _ => panic!("{place} has no example of `{key}`"),
        }
    }

    /// Reads an example of the row's place with this spelling. Returns the error.
    fn read(row: &Renamed, spelling: &str) -> Result<(), String> {
        let Renamed { place, new, .. } = *row;
        let session = |part: &str| configuration(&format!("[[session]]\nname = \"s\"\n{part}"));
        match place {
            "on_lag" => session(&format!(
                "channel = [{{ interface = \"e\", visibility = \"all\", on_lag = \"{spelling}\" }}]"
            )),
            "message" => json::<RequestLine>(&format!("{{\"weir\": 1, \"{spelling}\": \"show\"}}")),
            "ledger" => json::<RequestLine>(&format!(
                "{{\"weir\": 1, \"request\": {{\"ledger\": {{\"part\": \"{spelling}\"}}}}}}"
            )),
            "change" => {
                json::<Change>(&format!("{{\"session\": \"s\", \"{spelling}\": {}}}", value(place, new)))
            }
            place => {
                let key = format!("{spelling} = {}", value(place, new));
                match place {
                    "[node]" | "[isolation]" | "[cpu]" => configuration(&format!("{place}\n{key}")),
                    "[[link]]" => {
                        configuration(&format!("{place}\ninterface = \"l\"\nrate = \"1 Mbit/s\"\n{key}"))
                    }
                    "cpu" => session(&format!("cpu = [{{ period = \"10ms\", slice = \"1ms\", {key} }}]")),
                    "channel" => session(&format!("channel = [{{ interface = \"e\", {key} }}]")),
                    "output" => session(&format!("output = [{{ link = \"l\", period = \"6ms\", {key} }}]")),
                    "offer" => session(&format!("offer = [{{ service = \"v\", callers = [], {key} }}]")),
                    "use" if new == "session" => session(&format!("use = [{{ service = \"v\", {key} }}]")),
                    "use" => session(&format!("use = [{{ service = \"v\", session = \"b\", {key} }}]")),
                    place => policy(place, new, &key),
                }
            }
        }
    }

    fn configuration(text: &str) -> Result<(), String> {
        let around = "[[interface]]\nname = \"e\"\n[[link]]\ninterface = \"m\"\nrate = \"1 Mbit/s\"\n";
        let around =
            if text.contains("link = \"l\"") { around.replace("\"m\"", "\"l\"") } else { around.to_owned() };
        NodeConfiguration::parse(&format!("{text}\n{around}")).map(drop).map_err(|error| error.to_string())
    }

    fn json<T: DeserializeOwned>(text: &str) -> Result<(), String> {
        serde_json::from_str::<T>(text).map(drop).map_err(|error| with_advice(&error.to_string()))
    }

    /// Reads a policy's folder with a root and a case, one of which has this key.
    fn policy(place: &str, new: &str, key: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(path), text).unwrap();
        };
        let root = "key = \"weir-key:5jfgyy7ctrjavpxvkb5rglwf7gkuo5vox27hxescd3vgsfcg2iwctxsv\"\n[limit]\n";
        write("roots/r.toml", &(root.to_owned() + if place == "[limit]" { key } else { "" }));
        if place == "[[case]]" {
            let case = "[[case]]\nname = \"c\"\nroot = \"r\"\ngrant = [{}]\nat = \"2026-12-01\"\nexpect = \"allowed\"\n";
            let request = if new == "request" { "" } else { "request = \"show\"\n" };
            write("cases/c.toml", &format!("{case}{request}{key}"));
        }
        Policy::read(folder.path(), |_| None).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn each_earlier_spelling_is_refused_with_the_present_one_which_is_accepted() {
        for row in KEYS {
            assert_eq!(read(row, row.new), Ok(()), "{row:?}");
            let error = read(row, row.old).unwrap_err();
            assert!(error.contains(&format!("`{}` is now `{}`", row.old, row.new)), "{row:?}: {error}");
            let is_file = !matches!(row.place, "message" | "ledger" | "change");
            assert!(!is_file || error.contains("line ") || error.contains(".toml:"), "{row:?}: {error}");
        }
    }

    #[test]
    fn an_unknown_key_is_compared_with_the_known_ones() {
        for (message, advice) in [
            ("unknown field `perod`, expected one of `name`, `period`", Some("period")),
            ("unknown field `kept`, expected `name`, `kept_packets`", Some("kept_packets")),
            ("unknown field `record-bytes`, expected `record_bytes` or `name`", Some("record_bytes")),
            ("unknown variant `clsoe`, expected `drop` or `close`", Some("close")),
            ("unknown field `x`, expected `y`", None),
            ("unknown field `speed`, expected `name` or `rate`", None),
        ] {
            let expected =
                advice.map_or(message.to_owned(), |word| format!("{message}; did you mean `{word}`?"));
            assert_eq!(with_advice(message), expected);
        }
        // An earlier spelling is recognised only where the present spelling is a known key.
        assert!(!with_advice("unknown field `late`, expected `name`").contains("is now"));
        for message in ["unknown field `a", "invalid type: string", ""] {
            assert_eq!(with_advice(message), message);
        }
    }
}
