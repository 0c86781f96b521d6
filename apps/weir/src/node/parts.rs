//! `--cpu`, `--channel` and the like: the parts of a session, as `KEY=VALUE,...`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A part that is not as it should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{option} {}`: {why}", text.escape_debug())]
pub struct PartError {
    option: &'static str,
    text: String,
    why: String,
}

/// Keys whose values are numbers. All others are texts: names, and quantities with their units.
const NUMBERS: &[&str] = &["core", "weight", "queue"];
/// Keys whose values are several names, with spaces between them.
const LISTS: &[&str] = &["callers"];
/// Keys that can stand without a value: then they are true.
const FLAGS: &[&str] = &["spare", "reassemble"];

/// Reads a part. What it may hold is what the configuration may have there.
pub fn read<T: DeserializeOwned>(option: &'static str, text: &str) -> Result<T, PartError> {
    let wrong = |why: String| PartError { option, text: text.to_owned(), why };
    let mut keys = Map::new();
    for word in split(text).map_err(|why| wrong(why.to_owned()))? {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key.trim().to_owned(), Some(value.to_owned())),
            None => (word.trim().to_owned(), None),
        };
        let value = value_of(&key, value).map_err(wrong)?;
        if keys.insert(key.clone(), value).is_some() {
            return Err(wrong(format!("`{}` is there twice", key.escape_debug())));
        }
    }
    serde_json::from_value(Value::Object(keys)).map_err(|error| wrong(error.to_string()))
}

fn value_of(key: &str, value: Option<String>) -> Result<Value, String> {
    let shown = key.escape_debug();
    match value {
        None if FLAGS.contains(&key) => Ok(Value::Bool(true)),
        None => Err(format!("`{shown}` is not KEY=VALUE")),
        Some(value) if FLAGS.contains(&key) => match value.as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(format!("`{shown}` is true or false, not `{}`", value.escape_debug())),
        },
        Some(value) if NUMBERS.contains(&key) => {
            let number = value
                .parse::<u64>()
                .map_err(|_| format!("`{shown}` is a whole number, not `{}`", value.escape_debug()))?;
            Ok(number.into())
        }
        Some(value) if LISTS.contains(&key) => Ok(value.split_whitespace().collect::<Vec<_>>().into()),
        Some(value) => Ok(value.into()),
    }
}

/// Splits at commas that stand neither behind a backslash nor between double quotes; takes the quotes away, and the backslash before a comma, a quote or
/// another backslash. Other backslashes stay: filters have their own use for them.
fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_end = c == ',' && !is_quoted;
        match (c, words.last_mut()) {
            _ if is_end => words.push(String::new()),
            ('"', _) => is_quoted = !is_quoted,
            ('\\', Some(word)) => {
                word.push(chars.next_if(|next| matches!(next, ',' | '"' | '\\')).unwrap_or('\\'));
            }
            (c, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    if is_quoted {
        return Err("a double quote is not closed");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_node::offers::{OfferSpec, UseSpec};
    use weir_node::spec::{ChannelSpec, ProcessorSpec, Sees};
    use weir_units::Nanos;

    #[test]
    fn parts_are_read_as_the_configuration_has_them() {
        let cpu: ProcessorSpec = read("--cpu", "name=fast,core=1,period=10ms,slice=2.5ms,spare").unwrap();
        assert_eq!(cpu.reservation(), Some((Nanos(10_000_000), Nanos(2_500_000))));
        assert_eq!((cpu.name.as_str(), cpu.core, cpu.spare, cpu.weight), ("fast", Some(1), true, 100));
        let channel: ChannelSpec =
            read("--channel", r#"interface=eth0,filter="ip[0]=69 and (port 80, 81)",sees=all,queue=16"#)
                .unwrap();
        assert_eq!((channel.filter.as_str(), channel.sees), ("ip[0]=69 and (port 80, 81)", Sees::All));
        assert_eq!((channel.name.as_str(), channel.queue), ("main", Some(16)));
        let channel: ChannelSpec =
            read("--channel", r"interface=eth0,filter=ether proto \ip and 1\,2").unwrap();
        assert_eq!(channel.filter, r"ether proto \ip and 1,2");
        let offer: OfferSpec =
            read("--offer", "service=lookup,callers=alice  bob,queue=4,pays=caller").unwrap();
        let callers: Vec<&str> = offer.callers.iter().map(weir_session::Name::as_str).collect();
        assert_eq!((offer.service.as_str(), callers, offer.queue), ("lookup", vec!["alice", "bob"], 4));
        let used: UseSpec = read("--use", "service=lookup,of=asn,pays=50us").unwrap();
        assert_eq!((used.of.as_str(), used.pays), ("asn", Some(Nanos(50_000))));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cpu = |text| read::<ProcessorSpec>("--cpu", text).unwrap_err().to_string();
        let channel = |text| read::<ChannelSpec>("--channel", text).unwrap_err().to_string();
        for (error, says) in [
            (cpu("perod=1ms"), "`--cpu perod=1ms`: unknown field `perod`, expected one of `name`, `core`"),
            (cpu("period"), "`period` is not KEY=VALUE"),
            (cpu("period=soon"), "`soon` is not a duration"),
            (cpu("weight=1,weight=2"), "`weight` is there twice"),
            (cpu("core=first"), "`core` is a whole number, not `first`"),
            (cpu("core=99999"), "65535"),
            (cpu("spare=yes"), "`spare` is true or false, not `yes`"),
            (cpu("name=A b"), "`A b` is not a name"),
            (cpu(""), "`` is not KEY=VALUE"),
            (channel("filter=tcp"), "missing field `interface`"),
            (channel("interface=e,sees=some"), "unknown variant `some`, expected `selected` or `all`"),
            (channel("interface=e,filter=\"tcp"), "a double quote is not closed"),
        ] {
            let expected = if says.starts_with("65535") { "u16" } else { says };
            assert!(error.contains(expected), "{error}");
        }
    }
}
