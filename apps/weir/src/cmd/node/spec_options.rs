//! Command-line options of `weir session create` and `weir session change`, generated from the keys of a session's
//! specification, one for each key. The values are deserialized by the same serde structures as configuration files and
//! protocol messages.

use clap::error::Error as ClapError;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use serde::de::value::{Error, MapAccessDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor,
};
use serde_json::{Map, Value as Json};
use std::marker::PhantomData;
use weir_admission::Name;
use weir_node::control::renamed_keys::with_advice;
use weir_node::control::spec::{Keyed, SpecKey};
use weir_trust::grant::Resource;
use weir_wire::{WriteField, WriteFields};

/// The placeholder of a value of the form `KEY=VALUE,...`.
const KEY_VALUES: &str = "KEY=VALUE[,...]";

/// The error of an option whose value is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecOptionError(String);

/// The options for the keys of the specification `T`, as given on a command line. A clap structure includes these
/// options by `#[command(flatten)]`.
#[derive(Clone, Debug)]
pub struct SpecOptions<T> {
    options: Vec<(&'static SpecKey, Vec<String>)>,
    spec: PhantomData<T>,
}

impl<T: Keyed> Args for SpecOptions<T> {
    fn augment_args(command: Command) -> Command {
        command.args(T::KEYS.iter().enumerate().map(|(index, key)| {
            let (name, value) = key.usage();
            let action = if key.is_list { ArgAction::Append } else { ArgAction::Set };
            let arg = Arg::new(name).long(name).value_name(value).help(key.help()).action(action);
            // Values of the form KEY=VALUE,... are checked later by `SpecOptions::read`, whose errors name the option
            // themselves.
            let check = move |text: &str| match value {
                KEY_VALUES => Ok(text.to_owned()),
                _ => read::<T>("main", &[(key, vec![text.to_owned()])]).map(|_| text.to_owned()),
            };
            let arg = arg.value_parser(check);
            if T::IS_CHANGE && index == 0 {
                arg.required_unless_present_any(options_after_first::<T>())
            } else {
                arg
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the names of all options that change a session, except the first. The first option is required if the
/// command line has none of these.
fn options_after_first<T: Keyed>() -> Vec<&'static str> {
    let limits = Resource::limits().map(|(resource, _)| resource.definition().name);
    T::KEYS.iter().skip(1).map(|key| key.usage().0).chain(limits).collect()
}

impl<T: Keyed> FromArgMatches for SpecOptions<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let options = T::KEYS.iter().filter_map(|key| {
            let texts = matches.get_many::<String>(key.usage().0)?;
            Some((key, texts.cloned().collect()))
        });
        Ok(Self { options: options.collect(), spec: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Keyed> SpecOptions<T> {
    /// Builds the specification for a session of this name; keys without an option have their defaults.
    ///
    /// # Errors
    /// The value of an option is not valid.
    pub fn read(&self, session: &Name) -> Result<T, SpecOptionError> {
        read(session.as_str(), &self.options)
    }

    /// Returns `base` with the keys of the given options replaced.
    ///
    /// # Errors
    /// The value of an option is not valid.
    pub fn override_spec(&self, session: &Name, base: &T) -> Result<T, SpecOptionError> {
        let (mut all, mut replaced) = (to_map(base)?, to_map(&self.read(session)?)?);
        for (key, _) in &self.options {
            // A key with its default value is not serialized.
            match replaced.remove(key.key) {
                Some(value) => _ = all.insert(key.key.to_owned(), value),
                None => _ = all.remove(key.key),
            }
        }
        serde_json::from_value(all.into()).map_err(|error| SpecOptionError(error.to_string()))
    }
}

/// Converts a specification to its keys and values, without keys that have their default values.
fn to_map(spec: &impl Serialize) -> Result<Map<String, Json>, SpecOptionError> {
    let map = serde_json::to_value(spec).and_then(serde_json::from_value);
    map.map_err(|error| SpecOptionError(error.to_string()))
}

/// Deserializes a specification from the name of the session and the texts of the options.
fn read<T: Keyed>(session: &str, options: &[(&SpecKey, Vec<String>)]) -> Result<T, SpecOptionError> {
    let mut entries =
        vec![(T::NAME, Value::One(TextValue { key: T::NAME, text: Some(session), option: None }))];
    entries.extend(options.iter().map(|(key, texts)| {
        let option = Some(key.usage().0);
        let mut values: Vec<TextValue<'_>> =
            texts.iter().map(|text| TextValue { key: key.key, text: Some(text), option }).collect();
        match values.pop() {
            Some(last) if !key.is_list => (key.key, Value::One(last)),
            last => (key.key, Value::List(values.into_iter().chain(last).collect())),
        }
    }));
    read_map(entries).map_err(|error| SpecOptionError(error.to_string()))
}

/// Deserializes a specification from its keys and values.
fn read_map<T: DeserializeOwned>(entries: Vec<(&str, Value<'_>)>) -> Result<T, Error> {
    T::deserialize(MapAccessDeserializer::new(SpecMap { entries: entries.into_iter(), value: None }))
}

/// Deserializes a part of a session, such as a channel, from the option's value `KEY=VALUE,...`.
fn read_part<'de, V: Visitor<'de>>(option: &str, text: &str, visitor: V) -> Result<V::Value, Error> {
    let part_error = |why: String| Error::custom(format_args!("`--{option} {}`: {why}", text.escape_debug()));
    let pairs = split(text).map_err(|why| part_error(why.to_owned()))?;
    let mut entries: Vec<(&str, Value<'_>)> = Vec::new();
    for pair in &pairs {
        let (key, text) = pair.split_once('=').map_or((pair.as_str(), None), |(key, text)| (key, Some(text)));
        let key = key.trim();
        if entries.iter().any(|(known, _)| *known == key) {
            return Err(part_error(format!("`{}` is given twice", key.escape_debug())));
        }
        entries.push((key, Value::One(TextValue { key, text, option: None })));
    }
    visitor
        .visit_map(SpecMap { entries: entries.into_iter(), value: None })
        .map_err(|error| part_error(with_advice(&error.to_string())))
}

/// Keys and their values, as a serde map.
struct SpecMap<'a> {
    entries: std::vec::IntoIter<(&'a str, Value<'a>)>,
    value: Option<Value<'a>>,
}

/// The value of a key: one text, or the texts of a repeated option.
enum Value<'a> {
    One(TextValue<'a>),
    List(Vec<TextValue<'a>>),
}

impl<'de> MapAccess<'de> for SpecMap<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        let known_key = seed.deserialize(IntoDeserializer::<Error>::into_deserializer(key));
        // For an unknown key without a value, the error that it is not KEY=VALUE is more helpful.
        let known_key = match &value {
            Value::One(value) => known_key.map_err(|error| value.text().err().unwrap_or(error)),
            Value::List(_) => known_key,
        };
        self.value = Some(value);
        known_key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.value.take() {
            Some(Value::One(value)) => seed.deserialize(value),
            Some(Value::List(values)) => seed.deserialize(SeqDeserializer::new(values.into_iter())),
            None => Err(Error::custom("a value without a key")),
        }
    }
}

/// A value as typed on the command line. Deserializing parses the text to the requested type.
#[derive(Clone, Copy)]
struct TextValue<'a> {
    key: &'a str,
    /// The text after `=`; `None` for a key without a value.
    text: Option<&'a str>,
    /// The option that has the value; `None` for a key within `KEY=VALUE,...`.
    option: Option<&'a str>,
}

impl<'a> TextValue<'a> {
    /// Returns the text.
    ///
    /// # Errors
    /// The key has no value.
    fn text(&self) -> Result<&'a str, Error> {
        self.text.ok_or_else(|| Error::custom(format_args!("`{}` is not KEY=VALUE", self.key.escape_debug())))
    }

    fn deserialize_whole_number<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (key, text) = (self.key.escape_debug(), self.text()?);
        let number = text.parse().map_err(|_| {
            Error::custom(format_args!("`{key}` is a whole number, not `{}`", text.escape_debug()))
        });
        visitor.visit_u64(number?)
    }
}

impl<'a> IntoDeserializer<'_> for TextValue<'a> {
    type Deserializer = TextValue<'a>;

    fn into_deserializer(self) -> TextValue<'a> {
        self
    }
}

macro_rules! deserialize_whole_numbers {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.deserialize_whole_number(visitor)
        }
    )+};
}

impl<'de> Deserializer<'de> for TextValue<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text()?)
    }

    deserialize_whole_numbers! { deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    /// Deserializes a boolean; a key without a value is true.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.text {
            None | Some("true") => visitor.visit_bool(true),
            Some("false") => visitor.visit_bool(false),
            Some(text) => {
                let (key, text) = (self.key.escape_debug(), text.escape_debug());
                Err(Error::custom(format_args!("`{key}` is true or false, not `{text}`")))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    /// Deserializes a list from one text: the names of packet fields as the value of an option, or words separated by
    /// spaces within `KEY=VALUE,...`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text()?;
        let items: Vec<&str> = match self.option {
            Some(_) => {
                text.parse::<WriteFields>().map_err(Error::custom)?.iter().map(WriteField::name).collect()
            }
            None => text.split_whitespace().collect(),
        };
        SeqDeserializer::new(items.into_iter()).deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.option {
            Some(option) => read_part(option, self.text()?, visitor),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.text()?.into_deserializer().deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct map identifier ignored_any
    }
}

/// Splits `KEY=VALUE,...` at commas, except after a backslash and between double quotes. Removes the quotes, and each
/// backslash before a comma, a quote or another backslash. Other backslashes stay, because filter expressions use them.
fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut pairs = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_end = c == ',' && !is_quoted;
        match (c, pairs.last_mut()) {
            _ if is_end => pairs.push(String::new()),
            ('"', _) => is_quoted = !is_quoted,
            ('\\', Some(pair)) => {
                pair.push(chars.next_if(|next| matches!(next, ',' | '"' | '\\')).unwrap_or('\\'));
            }
            (c, Some(pair)) => pair.push(c),
            (_, None) => {}
        }
    }
    if is_quoted {
        return Err("a double quote is not closed");
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_node::control::process_isolation::Process;
    use weir_node::control::services::{OfferSpec, UseSpec};
    use weir_node::control::spec::{Change, ChannelSpec, MappedPackets, ProcessorSpec, SessionSpec};
    use weir_units::{Bytes, Nanos};

    fn read<T: DeserializeOwned>(option: &str, text: &str) -> Result<T, Error> {
        T::deserialize(TextValue { key: "", text: Some(text), option: option.strip_prefix("--") })
    }

    /// Parses options from the words of a command line.
    fn parse<T: Keyed>(words: &[&str]) -> SpecOptions<T> {
        let command = SpecOptions::<T>::augment_args(Command::new("c").no_binary_name(true));
        SpecOptions::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn options_replace_the_keys_of_a_file() {
        let file: SessionSpec = toml::from_str(
            "name = \"a\"\nprocess = \"own\"\nmemory = \"1 MiB\"\npriority = 3\nkept_packets = 5\nwrites = [\"ttl\"]\n\
             cpu = [{ weight = 5 }, { name = \"b\" }]\nread = [\"t\"]\nmodule = [{ module = \"m\", set = { n = 1.5 } }]",
        )
        .unwrap();
        let over = |words: &[&str]| parse(words).override_spec(&file.name, &file).unwrap();
        assert_eq!(over(&[]), file);
        let now = over(&["--process", "node", "--priority", "0", "--cpu", "name=c", "--write", "none"]);
        let changed = SessionSpec {
            process: Process::Node,
            priority: 0,
            processors: vec![read("--cpu", "name=c").unwrap()],
            writes: Some(WriteFields::NONE),
            ..file.clone()
        };
        assert_eq!(now, changed);
        let all = over(&["--write", "all", "--read", "t=u", "--read", "v", "--memory-max", "2MiB"]);
        assert_eq!((all.writes, all.read.len(), all.memory), (Some(WriteFields::ALL), 2, Bytes(1 << 20)));
        assert_eq!(all.memory_max, Some(Bytes(2 << 20)));
    }

    #[test]
    fn every_key_has_an_option_and_every_value_its_error() {
        let command = |words: &[&str]| {
            let command = SpecOptions::<Change>::augment_args(Command::new("c").no_binary_name(true));
            let command =
                crate::amounts::AmountOptions::<crate::amounts::SessionLimitAmounts>::augment_args(command);
            command.try_get_matches_from(words).map(drop).map_err(|error| error.to_string())
        };
        for key in Change::KEYS {
            let (name, value) = key.usage();
            let error = command(&[&format!("--{name}"), "Ä"]).map_or_else(|error| error, |()| String::new());
            assert_eq!(error.contains(&format!("--{name} <{value}>")), value != KEY_VALUES, "{error}");
        }
        assert!(command(&[]).unwrap_err().contains("--memory <BYTES>"));
        let printed = command(&["--write", "ttl,size"]).unwrap_err();
        assert!(printed.contains("`size` is no field that can be written"), "{printed}");
        assert_eq!(command(&["--write", "ttl,dscp"]), Ok(()));
    }

    #[test]
    fn key_value_options_are_read_like_the_configuration() {
        let cpu: ProcessorSpec = read("--cpu", "name=fast,core=1,period=10ms,slice=2.5ms,borrow").unwrap();
        assert_eq!(cpu.reservation(), Some((Nanos(10_000_000), Nanos(2_500_000))));
        assert_eq!((cpu.name.as_str(), cpu.core, cpu.borrow, cpu.weight), ("fast", Some(1), true, 100));
        let channel: ChannelSpec = read(
            "--channel",
            r#"interface=eth0,filter="ip[0]=69 and (port 80, 81)",visibility=all,queue=16"#,
        )
        .unwrap();
        assert_eq!(
            (channel.filter.as_str(), channel.visibility),
            ("ip[0]=69 and (port 80, 81)", MappedPackets::All)
        );
        assert_eq!((channel.name.as_str(), channel.queue), ("main", Some(16)));
        let channel: ChannelSpec =
            read("--channel", r"interface=eth0,filter=ether proto \ip and 1\,2").unwrap();
        assert_eq!(channel.filter, r"ether proto \ip and 1,2");
        let offer: OfferSpec =
            read("--offer", "service=lookup,callers=alice  bob,queue=4,payer=caller").unwrap();
        let callers: Vec<&str> = offer.callers.iter().map(weir_admission::Name::as_str).collect();
        assert_eq!((offer.service.as_str(), callers, offer.queue), ("lookup", vec!["alice", "bob"], 4));
        let used: UseSpec = read("--use", "service=lookup,session=asn,cost_max=50us").unwrap();
        assert_eq!((used.session.as_str(), used.cost_max), ("asn", Some(Nanos(50_000))));
    }

    #[test]
    fn errors_name_the_option_and_the_fault() {
        let cpu = |text| read::<ProcessorSpec>("--cpu", text).unwrap_err().to_string();
        let channel = |text| read::<ChannelSpec>("--channel", text).unwrap_err().to_string();
        for (error, says) in [
            (cpu("perod=1ms"), "`--cpu perod=1ms`: unknown field `perod`, expected one of `name`, `core`"),
            (cpu("period"), "`period` is not KEY=VALUE"),
            (cpu("period=soon"), "`soon` is not a duration"),
            (cpu("weight=1,weight=2"), "`weight` is given twice"),
            (cpu("core=first"), "`core` is a whole number, not `first`"),
            (cpu("core=99999"), "65535"),
            (cpu("borrow=yes"), "`borrow` is true or false, not `yes`"),
            (cpu("name=A b"), "`A b` is not a name"),
            (cpu(""), "`` is not KEY=VALUE"),
            (channel("filter=tcp"), "missing field `interface`"),
            (channel("interface=e,visibility=some"), "unknown variant `some`, expected `selected` or `all`"),
            (channel("interface=e,filter=\"tcp"), "a double quote is not closed"),
        ] {
            let expected = if says.starts_with("65535") { "u16" } else { says };
            assert!(error.contains(expected), "{error}");
        }
    }
}
