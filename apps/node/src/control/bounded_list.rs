//! Serde functions that read lists of bounded length. A list that is too long is refused while its request is parsed.
//! So the cost of a request is bounded before its rights are checked, whatever the length of its line.

use crate::control::link_spec::OutputSpec;
use crate::control::preprocessing::ShardField;
use crate::control::quantity::{self, AsText, Exact};
use crate::control::services::{OfferSpec, UseSpec};
use crate::control::share::{SHARES_MAX, ShareGrant};
use crate::control::spec::{ChannelSpec, LIST_ENTRIES_MAX, ModuleSpec, ProcessorSpec, TomlValue};
use crate::control::table_grant::TableGrant;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use weir_admission::{Name, ParameterValue};
use weir_wire::WriteFields;

/// Maximum length of a module's name or path, in bytes: that of a path in Linux (`PATH_MAX`).
const MODULE_BYTES_MAX: usize = 4096;

/// The type of the entries of a list with a maximum length.
pub(crate) trait SpecList {
    /// Plural of the entries' kind, for errors.
    const PLURAL: &'static str;
    /// Maximum number of entries in one list.
    const COUNT_MAX: usize = LIST_ENTRIES_MAX;
}

macro_rules! bounded {
    ($($entry:ty = $plural:literal;)+) => { $(impl SpecList for $entry { const PLURAL: &'static str = $plural; })+ };
}

bounded! {
    ProcessorSpec = "virtual CPUs";
    ChannelSpec = "channels";
    OutputSpec = "output channels";
    ModuleSpec = "modules";
    OfferSpec = "offers";
    UseSpec = "uses";
    TableGrant = "tables";
    Name = "names in a list";
    ShardField = "fields";
    WritableField = "fields";
    // Signatures of modules.
    String = "signatures";
}

impl SpecList for ShareGrant {
    const PLURAL: &'static str = "shares";
    const COUNT_MAX: usize = SHARES_MAX;
}

impl SpecList for TomlValue {
    const PLURAL: &'static str = "values in a list";
    /// Maximum length of a parameter in bytes: even with values of one byte, no parameter contains more.
    const COUNT_MAX: usize = ParameterValue::BYTES_MAX;
}

/// The name of a writable field.
#[derive(Deserialize)]
#[serde(transparent)]
struct WritableField(String);

fn too_many<T: SpecList, E: Error>() -> E {
    E::custom(format_args!("too many {} ({} at most)", T::PLURAL, T::COUNT_MAX))
}

/// Reads a list of at most [`SpecList::COUNT_MAX`] entries. For `#[serde(deserialize_with = "bounded_list::list")]`.
pub(crate) fn list<'de, T: Deserialize<'de> + SpecList, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List(PhantomData))
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + SpecList> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of up to {} {}", T::COUNT_MAX, T::PLURAL)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = from.next_element()? {
            if all.len() >= T::COUNT_MAX {
                return Err(too_many::<T, _>());
            }
            all.push(entry);
        }
        Ok(all)
    }
}

/// Reads and writes a list of values as texts, for `#[serde(with = "bounded_list::texts")]`.
pub(crate) mod texts {
    use super::*;

    pub(crate) fn serialize<T: Exact, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        quantity::texts::serialize(values, to)
    }

    pub(crate) fn deserialize<'de, T: Exact + SpecList, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(list(from)?.into_iter().map(|AsText(value)| value).collect())
    }

    impl<T: SpecList> SpecList for AsText<T> {
        const PLURAL: &'static str = T::PLURAL;
        const COUNT_MAX: usize = T::COUNT_MAX;
    }
}

/// Reads a list of writable fields by name, for `#[serde(deserialize_with = "bounded_list::writes")]`.
pub(crate) fn writes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<WriteFields>, D::Error> {
    let names: Vec<WritableField> = list(from)?;
    names
        .iter()
        .map(|name| WriteFields::find_field(&name.0).map_err(D::Error::custom))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Reads the name or path of a module, for `#[serde(deserialize_with = "bounded_list::module")]`.
pub(crate) fn module<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let module = String::deserialize(from)?;
    if module.len() > MODULE_BYTES_MAX {
        let len = module.len();
        let why = format_args!("the name or path of a module has {len} bytes ({MODULE_BYTES_MAX} at most)");
        return Err(D::Error::custom(why));
    }
    Ok(module)
}

/// Reads the parameters of a module, for `#[serde(deserialize_with = "bounded_list::settings")]`.
pub(crate) fn settings<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, TomlValue>, D::Error> {
    from.deserialize_map(Settings)
}

struct Settings;

impl SpecList for Settings {
    const PLURAL: &'static str = "parameters of a module";
}

impl<'de> Visitor<'de> for Settings {
    type Value = BTreeMap<String, TomlValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} {}", Self::COUNT_MAX, Self::PLURAL)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, given)) = from.next_entry()? {
            if all.len() >= Self::COUNT_MAX {
                return Err(too_many::<Self, _>());
            }
            all.insert(name, given);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for TomlValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TomlValueVisitor)
    }
}

struct TomlValueVisitor;

impl<'de> Visitor<'de> for TomlValueVisitor {
    type Value = TomlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, a number, text, or a list of these")
    }

    fn visit_bool<E>(self, value: bool) -> Result<TomlValue, E> {
        Ok(TomlValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<TomlValue, E> {
        Ok(TomlValue::Whole(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<TomlValue, E> {
        Ok(i64::try_from(value).map_or_else(|_| TomlValue::Text(value.to_string()), TomlValue::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<TomlValue, E> {
        Ok(TomlValue::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<TomlValue, E> {
        Ok(TomlValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<TomlValue, E> {
        Ok(TomlValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<TomlValue, A::Error> {
        List(PhantomData).visit_seq(from).map(TomlValue::List)
    }
}

#[cfg(test)]
mod tests {
    use crate::control::protocol::request_reader::{ParsedRequest, read_request};
    use crate::control::protocol::{ControlRequest, LINE_BYTES_MAX, RequestLine};
    use crate::control::spec::{LIST_ENTRIES_MAX, SessionSpec, TomlValue};

    /// A list of `count` entries, with `N` replaced by the index.
    fn list(one: &str, count: usize) -> String {
        let all: Vec<String> = (0..count).map(|n| one.replace('N', &n.to_string())).collect();
        all.join(",")
    }

    /// Requests in which one list has `count` entries, each with the kind of entry.
    fn requests(count: usize) -> Vec<(String, &'static str)> {
        let create = |list: String| format!(r#"{{"create":{{"name":"s",{list}}}}}"#);
        let change = |list: String| format!(r#"{{"change":{{"session":"s",{list}}}}}"#);
        let both = |name: &str, one: &str| {
            [create, change].map(|of| of(format!(r#""{name}":[{}]"#, list(one, count))))
        };
        let changed = |name: &str| change(format!(r#""{name}":[{}]"#, list(r#""aN""#, count)));
        let mut all: Vec<(String, &str)> = Vec::new();
        for (name, one, what) in [
            ("cpu", r#"{"name":"aN"}"#, "virtual CPUs"),
            ("channel", r#"{"interface":"","name":"aN"}"#, "channels"),
            ("output", r#"{"link":"","name":"aN"}"#, "output channels"),
            ("offer", r#"{"service":"aN","callers":[]}"#, "offers"),
            ("use", r#"{"service":"aN","session":"b"}"#, "uses"),
            ("read", r#""aN""#, "tables"),
            ("publish", r#""aN""#, "tables"),
        ] {
            all.extend(both(name, one).map(|line| (line, what)));
        }
        all.push((create(format!(r#""module":[{}]"#, list(r#"{"module":"mN"}"#, count))), "modules"));
        for name in ["remove_offer", "remove_use", "remove_read", "remove_publish"] {
            all.push((changed(name), "names in a list"));
        }
        let callers = format!(r#""offer":[{{"service":"s","callers":[{}]}}]"#, list(r#""aN""#, count));
        all.push((create(callers), "names in a list"));
        let by = format!(
            r#""channel":[{{"interface":"","subflows":{{"by":[{}],"queues":2}}}}]"#,
            list(r#""vlan""#, count)
        );
        all.push((create(by), "fields"));
        all.push((change(format!(r#""writes":[{}]"#, list(r#""ttl""#, count))), "fields"));
        let load = |set: &str, more: &str| {
            format!(r#"{{"load":{{"session":"s","module":{{"module":"m"{set}}}{more}}}}}"#)
        };
        let set = format!(r#","set":{{{}}}"#, list(r#""aN":1"#, count));
        all.push((load(&set, ""), "parameters of a module"));
        all.push((load("", &format!(r#","signatures":[{}]"#, list(r#""""#, count))), "signatures"));
        let explained =
            |(request, what): &(String, _)| (format!(r#"{{"explain":{{"request":{request}}}}}"#), *what);
        let explained: Vec<_> = all.iter().map(explained).collect();
        all.into_iter().chain(explained).collect()
    }

    fn said(request: &str) -> ParsedRequest {
        let line = format!("{{\"weir\":1,\"request\":{request}}}\n");
        assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
        read_request(&mut line.as_bytes()).unwrap()
    }

    #[test]
    fn every_list_in_a_request_is_bounded() {
        for (request, what) in requests(LIST_ENTRIES_MAX) {
            assert!(matches!(said(&request), ParsedRequest::Request(..)), "{what}: {:?}", said(&request));
        }
        // Lists with one entry too many, and lists that fill a line, most of whose entries are not stored.
        for (request, what) in requests(LIST_ENTRIES_MAX + 1).into_iter().chain(requests(20_000)) {
            let ParsedRequest::Invalid(why) = said(&request) else { panic!("{what}: it was read") };
            let says = format!("the line is not a request: too many {what} (64 at most) at line 1 column ");
            let column = why.strip_prefix(&says).unwrap_or_else(|| panic!("{what}: {why}"));
            assert!(column.parse::<usize>().unwrap() < 8192, "{what}: {why}");
        }
    }

    #[test]
    fn values_of_parameters_are_read_without_loss() {
        let read = |text: &str| serde_json::from_str::<TomlValue>(text).map_err(|error| error.to_string());
        let text = |text: &str| TomlValue::Text(text.to_owned());
        for (given, expected) in [
            ("true", TomlValue::Bool(true)),
            ("-7", TomlValue::Whole(-7)),
            ("9223372036854775807", TomlValue::Whole(i64::MAX)),
            ("9223372036854775808", text("9223372036854775808")),
            ("0.5", TomlValue::Number(0.5)),
            ("\"a\\n\"", text("a\n")),
            ("[1,[\"b\"]]", TomlValue::List(vec![TomlValue::Whole(1), TomlValue::List(vec![text("b")])])),
        ] {
            assert_eq!(read(given), Ok(expected), "{given}");
        }
        assert!(read("{}").unwrap_err().contains("expected true, false, a number, text, or a list of these"));
        assert!(read("null").is_err());
        let most = 64 << 10;
        assert!(read(&format!("[{}]", list("1", most))).is_ok());
        let why = read(&format!("[{}]", list("1", most + 1))).unwrap_err();
        assert!(why.contains("too many values in a list (65536 at most)"), "{why}");
    }

    #[test]
    fn lists_in_a_configuration_and_names_of_modules_are_bounded() {
        let channels = "[[channel]]\ninterface = \"e\"\n".repeat(LIST_ENTRIES_MAX + 1);
        let error = toml::from_str::<SessionSpec>(&format!("name = \"s\"\n{channels}")).unwrap_err();
        assert!(error.message().contains("too many channels (64 at most)"), "{error}");
        for (len, is_read) in [(4096, true), (4097, false)] {
            let module = "m".repeat(len);
            let line = format!(
                r#"{{"weir":1,"request":{{"load":{{"session":"s","module":{{"module":"{module}"}}}}}}}}"#
            );
            let read = serde_json::from_str::<RequestLine>(&line);
            assert_eq!(
                matches!(read, Ok(RequestLine { request: ControlRequest::Load { .. }, .. })),
                is_read,
                "{len}: {read:?}"
            );
        }
    }
}
