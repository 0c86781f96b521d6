//! Lists in what is asked for are counted while they are read. Of one that is too long no more is kept than there may be, and nothing is done of it: it is not even asked who
//! asks. So what a request costs before somebody is in his turn is bounded by this, and not by how much fits on a line.

use crate::control::handling::ShardField;
use crate::control::offers::{OfferSpec, UseSpec};
use crate::control::quantity::{self, Exact, QuantityText};
use crate::control::share::{SHARES_MAX, ShareGrant};
use crate::control::spec::{ChannelSpec, ModuleSpec, PARTS_MAX, ProcessorSpec, TomlValue};
use crate::link::OutputSpec;
use crate::sessions::tables::TableGrant;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use weir_admission::{Name, ParameterValue};
use weir_wire::WriteFields;

/// The longest name or path of a module, in bytes: as long as a path can be.
const MODULE_BYTES_MAX: usize = 4096;

/// Something of which there are lists.
pub(crate) trait SpecList {
    /// What several of it are.
    const WHAT: &'static str;
    /// How many there can be in one list.
    const MOST: usize = PARTS_MAX;
}

macro_rules! counted {
    ($($of:ty = $what:literal;)+) => { $(impl SpecList for $of { const WHAT: &'static str = $what; })+ };
}

counted! {
    ProcessorSpec = "virtual processors";
    ChannelSpec = "channels";
    OutputSpec = "output channels";
    ModuleSpec = "modules";
    OfferSpec = "offers";
    UseSpec = "uses";
    TableGrant = "tables";
    Name = "names in a list";
    ShardField = "fields";
    Written = "fields";
    // Of modules.
    String = "signatures";
}

impl SpecList for ShareGrant {
    const WHAT: &'static str = "shares";
    const MOST: usize = SHARES_MAX;
}

impl SpecList for TomlValue {
    const WHAT: &'static str = "values in a list";
    /// No parameter has more of them, of a byte each.
    const MOST: usize = ParameterValue::BYTES_MAX;
}

/// The name of a field that can be written.
#[derive(Deserialize)]
#[serde(transparent)]
struct Written(String);

fn too_many<T: SpecList, E: Error>() -> E {
    E::custom(format_args!("too many {} ({} at most)", T::WHAT, T::MOST))
}

/// For `#[serde(deserialize_with = "counted::list")]`.
pub(crate) fn list<'de, T: Deserialize<'de> + SpecList, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List(PhantomData))
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + SpecList> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of up to {} {}", T::MOST, T::WHAT)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element()? {
            if all.len() >= T::MOST {
                return Err(too_many::<T, _>());
            }
            all.push(one);
        }
        Ok(all)
    }
}

/// For `#[serde(with = "counted::texts")]`: several that are written as text.
pub(crate) mod texts {
    use super::*;

    pub(crate) fn serialize<T: Exact, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        quantity::texts::serialize(values, to)
    }

    pub(crate) fn deserialize<'de, T: Exact + SpecList, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(list(from)?.into_iter().map(|QuantityText(value)| value).collect())
    }

    impl<T: SpecList> SpecList for QuantityText<T> {
        const WHAT: &'static str = T::WHAT;
        const MOST: usize = T::MOST;
    }
}

/// For `#[serde(deserialize_with = "counted::writes")]`: fields that may be written.
pub(crate) fn writes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<WriteFields>, D::Error> {
    let names: Vec<Written> = list(from)?;
    names
        .iter()
        .map(|name| WriteFields::named(&name.0).map_err(D::Error::custom))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// For `#[serde(deserialize_with = "counted::module")]`: a module's name or path.
pub(crate) fn module<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let module = String::deserialize(from)?;
    if module.len() > MODULE_BYTES_MAX {
        let has = module.len();
        let why = format_args!("the name or path of a module has {has} bytes ({MODULE_BYTES_MAX} at most)");
        return Err(D::Error::custom(why));
    }
    Ok(module)
}

/// For `#[serde(deserialize_with = "counted::settings")]`: parameters of a module.
pub(crate) fn settings<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, TomlValue>, D::Error> {
    from.deserialize_map(Settings)
}

struct Settings;

impl SpecList for Settings {
    const WHAT: &'static str = "parameters of a module";
}

impl<'de> Visitor<'de> for Settings {
    type Value = BTreeMap<String, TomlValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} {}", Self::MOST, Self::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, given)) = from.next_entry()? {
            if all.len() >= Self::MOST {
                return Err(too_many::<Self, _>());
            }
            all.insert(name, given);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for TomlValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SpecEntry)
    }
}

struct SpecEntry;

impl<'de> Visitor<'de> for SpecEntry {
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
    use crate::control::protocol::{Ask, ControlRequest, LINE_BYTES_MAX};
    use crate::control::spec::{PARTS_MAX, SessionSpec, TomlValue};
    use crate::server::service::{Heard, hear};

    /// A list of so many of these, of which each is told from the others by `N`.
    fn list(one: &str, count: usize) -> String {
        let all: Vec<String> = (0..count).map(|n| one.replace('N', &n.to_string())).collect();
        all.join(",")
    }

    /// Requests of which one list has as many entries as are asked for, and what these are.
    fn requests(count: usize) -> Vec<(String, &'static str)> {
        let create = |list: String| format!(r#"{{"create":{{"name":"s",{list}}}}}"#);
        let change = |list: String| format!(r#"{{"change":{{"session":"s",{list}}}}}"#);
        let both = |name: &str, one: &str| {
            [create, change].map(|of| of(format!(r#""{name}":[{}]"#, list(one, count))))
        };
        let changed = |name: &str| change(format!(r#""{name}":[{}]"#, list(r#""aN""#, count)));
        let mut all: Vec<(String, &str)> = Vec::new();
        for (name, one, what) in [
            ("cpu", r#"{"name":"aN"}"#, "virtual processors"),
            ("channel", r#"{"interface":"","name":"aN"}"#, "channels"),
            ("output", r#"{"link":"","name":"aN"}"#, "output channels"),
            ("offer", r#"{"service":"aN","callers":[]}"#, "offers"),
            ("use", r#"{"service":"aN","of":"b"}"#, "uses"),
            ("read", r#""aN""#, "tables"),
            ("publish", r#""aN""#, "tables"),
        ] {
            all.extend(both(name, one).map(|line| (line, what)));
        }
        all.push((create(format!(r#""module":[{}]"#, list(r#"{"module":"mN"}"#, count))), "modules"));
        for name in ["withdraw", "forgo", "revoke_read", "revoke_publish"] {
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
        let explained = |(ask, what): &(String, _)| (format!(r#"{{"explain":{{"ask":{ask}}}}}"#), *what);
        let explained: Vec<_> = all.iter().map(explained).collect();
        all.into_iter().chain(explained).collect()
    }

    fn said(ask: &str) -> Heard {
        let line = format!("{{\"weir\":1,\"ask\":{ask}}}\n");
        assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
        hear(&mut line.as_bytes()).unwrap()
    }

    #[test]
    fn of_nothing_there_are_more_than_so_many_wherever_it_is_listed() {
        for (request, what) in requests(PARTS_MAX) {
            assert!(matches!(said(&request), Heard::Ask(..)), "{what}: {:?}", said(&request));
        }
        // One more, and as many as fit on a line, of which most are not even kept.
        for (request, what) in requests(PARTS_MAX + 1).into_iter().chain(requests(20_000)) {
            let Heard::Wrong(why) = said(&request) else { panic!("{what}: it was read") };
            let says = format!("this is no request: too many {what} (64 at most) at line 1 column ");
            let column = why.strip_prefix(&says).unwrap_or_else(|| panic!("{what}: {why}"));
            assert!(column.parse::<usize>().unwrap() < 8192, "{what}: {why}");
        }
    }

    #[test]
    fn what_a_parameter_is_given_is_read_as_it_was_written() {
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
    fn a_configuration_is_counted_as_well_and_a_modules_name_has_its_length() {
        let channels = "[[channel]]\ninterface = \"e\"\n".repeat(PARTS_MAX + 1);
        let error = toml::from_str::<SessionSpec>(&format!("name = \"s\"\n{channels}")).unwrap_err();
        assert!(error.message().contains("too many channels (64 at most)"), "{error}");
        for (len, is_read) in [(4096, true), (4097, false)] {
            let module = "m".repeat(len);
            let line = format!(
                r#"{{"weir":1,"ask":{{"load":{{"session":"s","module":{{"module":"{module}"}}}}}}}}"#
            );
            let read = serde_json::from_str::<Ask>(&line);
            assert_eq!(
                matches!(read, Ok(Ask { ask: ControlRequest::Load { .. }, .. })),
                is_read,
                "{len}: {read:?}"
            );
        }
    }
}
