//! The text form of views, in configurations, credentials and command lines.

use super::requested::RequestedView;
use super::{Addresses, Exposure, PacketView, Payload, ZeroedField};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most bytes of a text that is parsed. Every view has a shorter text.
const TEXT_MAX: usize = 512;

/// The reason why a text is not a view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The text is longer than any view's.
    #[error("a view's text has at most {TEXT_MAX} bytes; this one has {0}")]
    TooLong(usize),
    /// A part has an unknown name.
    #[error("`{}` is no part of a view; a part is {}", .0.escape_debug(), parts())]
    Unknown(String),
    /// A part has an invalid value.
    #[error("`{}` cannot be `{}`; it is {}", .part, .given.escape_debug(), .wanted)]
    Value {
        /// The part.
        part: &'static str,
        /// The given value.
        given: String,
        /// The valid values.
        wanted: &'static str,
    },
    /// A part is given twice.
    #[error("`{0}` is given twice; give it once")]
    Twice(&'static str),
}

const PAYLOAD: &str = "payload";
const ADDRESSES: &str = "addresses";
const MACS: &str = "macs";
const PORTS: &str = "ports";
const NONE: &str = "none";
const ALL: &str = "all";
const VISIBLE: &str = "visible";
const ANONYMISED: &str = "anonymised";
const CRYPTO_PAN: &str = "crypto-pan";
const ZEROED: &str = "zeroed";

fn parts() -> String {
    let mut parts = format!("`{ALL}` alone, `{PAYLOAD}=`, `{ADDRESSES}=`, `{MACS}=`, `{PORTS}=`");
    for field in ZeroedField::ALL {
        parts += &format!(", `{}={ZEROED}`", field.name());
    }
    parts
}

impl fmt::Display for PacketView {
    /// Writes `all`, or the hidden parts, separated by commas. If addresses are hidden, payload and hardware addresses
    /// are written in any case, as their defaults depend on addresses. The text parses to the same view.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str(ALL);
        }
        let are_hidden = self.addresses != Addresses::Visible;
        let mut between = "";
        let mut part = |name: &str, value: fmt::Arguments<'_>| {
            let written = write!(f, "{between}{name}={value}");
            between = ",";
            written
        };
        match self.payload {
            Payload::NONE => part(PAYLOAD, format_args!("{NONE}"))?,
            Payload::First(bytes) => part(PAYLOAD, format_args!("{bytes}"))?,
            Payload::All if are_hidden => part(PAYLOAD, format_args!("{ALL}"))?,
            Payload::All => {}
        }
        match self.addresses {
            Addresses::Zeroed => part(ADDRESSES, format_args!("{ZEROED}"))?,
            Addresses::Anonymised => part(ADDRESSES, format_args!("{ANONYMISED}"))?,
            Addresses::CryptoPan => part(ADDRESSES, format_args!("{CRYPTO_PAN}"))?,
            Addresses::Visible => {}
        }
        match self.macs {
            Exposure::Zeroed => part(MACS, format_args!("{ZEROED}"))?,
            Exposure::Visible if are_hidden => part(MACS, format_args!("{VISIBLE}"))?,
            Exposure::Visible => {}
        }
        if self.ports == Exposure::Zeroed {
            part(PORTS, format_args!("{ZEROED}"))?;
        }
        for field in self.zeroed.iter() {
            part(field.name(), format_args!("{ZEROED}"))?;
        }
        Ok(())
    }
}

impl FromStr for PacketView {
    type Err = ViewError;

    /// Parses `all`, or a list of parts in any order, separated by commas; spaces around them are ignored. Parts that
    /// are not named are visible, with one exception: if addresses are not visible, payload and hardware addresses are
    /// hidden by default.
    ///
    /// | part | values |
    /// |---|---|
    /// | `payload` | `all`, `none`, or a number of bytes after the last header |
    /// | `addresses` | `visible`, `anonymised`, `crypto-pan`, `zeroed` |
    /// | `macs`, `ports`, and each [`ZeroedField`] by its name | `visible`, `zeroed` |
    ///
    /// # Errors
    ///
    /// See [`ViewError`].
    fn from_str(text: &str) -> Result<Self, ViewError> {
        text.parse::<RequestedView>().map(|requested| requested.unrestricted())
    }
}

/// The defaults of payload and hardware addresses for this visibility of addresses.
pub(super) fn defaults_for(addresses: Addresses) -> (Payload, Exposure) {
    match addresses {
        Addresses::Visible => (Payload::All, Exposure::Visible),
        Addresses::Anonymised | Addresses::CryptoPan | Addresses::Zeroed => (Payload::NONE, Exposure::Zeroed),
    }
}

impl FromStr for RequestedView {
    type Err = ViewError;

    /// Parses the text form of a [`PacketView`].
    ///
    /// # Errors
    ///
    /// See [`ViewError`].
    fn from_str(text: &str) -> Result<Self, ViewError> {
        if text.len() > TEXT_MAX {
            return Err(ViewError::TooLong(text.len()));
        }
        let text = text.trim();
        if text == ALL {
            return Ok(Self::EVERYTHING);
        }
        let mut given = Self::default();
        for part in text.split(',') {
            given.parse_part(part.trim())?;
        }
        Ok(given)
    }
}

impl RequestedView {
    /// Parses one part of a text, `name=value`.
    fn parse_part(&mut self, part: &str) -> Result<(), ViewError> {
        let unknown = || ViewError::Unknown(part.to_owned());
        let (name, value) = part.split_once('=').ok_or_else(unknown)?;
        let value = value.trim_start();
        match name.trim_end() {
            PAYLOAD => set(&mut self.payload, PAYLOAD, payload(value)?),
            ADDRESSES => set(&mut self.addresses, ADDRESSES, addresses(value)?),
            MACS => set(&mut self.macs, MACS, exposure(MACS, value)?),
            PORTS => set(&mut self.ports, PORTS, exposure(PORTS, value)?),
            name => {
                let field = ZeroedField::ALL
                    .iter()
                    .copied()
                    .find(|field| field.name() == name)
                    .ok_or_else(unknown)?;
                if self.named.has(field) {
                    return Err(ViewError::Twice(field.name()));
                }
                self.named = self.named | field.into();
                if exposure(field.name(), value)? == Exposure::Zeroed {
                    self.zeroed = self.zeroed | field.into();
                }
                Ok(())
            }
        }
    }
}

/// Sets a part of a view.
///
/// # Errors
///
/// [`ViewError::Twice`] if the part is set already.
fn set<T>(place: &mut Option<T>, part: &'static str, value: T) -> Result<(), ViewError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ViewError::Twice(part)),
    }
}

fn payload(value: &str) -> Result<Payload, ViewError> {
    match value {
        ALL => Ok(Payload::All),
        NONE => Ok(Payload::NONE),
        _ if value.bytes().all(|byte| byte.is_ascii_digit()) => {
            value.parse().map(Payload::First).map_err(|_| value_error(PAYLOAD, value))
        }
        _ => Err(value_error(PAYLOAD, value)),
    }
}

fn addresses(value: &str) -> Result<Addresses, ViewError> {
    match value {
        VISIBLE => Ok(Addresses::Visible),
        ANONYMISED => Ok(Addresses::Anonymised),
        CRYPTO_PAN => Ok(Addresses::CryptoPan),
        ZEROED => Ok(Addresses::Zeroed),
        _ => Err(value_error(ADDRESSES, value)),
    }
}

fn exposure(part: &'static str, value: &str) -> Result<Exposure, ViewError> {
    match value {
        VISIBLE => Ok(Exposure::Visible),
        ZEROED => Ok(Exposure::Zeroed),
        _ => Err(value_error(part, value)),
    }
}

fn value_error(part: &'static str, given: &str) -> ViewError {
    let wanted = match part {
        PAYLOAD => "`all`, `none`, or a number of bytes, such as `payload=64`",
        ADDRESSES => "`visible`, `anonymised`, `crypto-pan` or `zeroed`",
        _ => "`visible` or `zeroed`",
    };
    ViewError::Value { part, given: given.to_owned(), wanted }
}

impl Serialize for PacketView {
    /// Serialises the text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PacketView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::views;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_view_is_parsed_from_its_own_text(view in views()) {
            let text = view.to_string();
            prop_assert!(text.len() <= TEXT_MAX);
            prop_assert_eq!(text.parse::<PacketView>(), Ok(view));
            prop_assert_eq!(text.replace(',', " , ").replace('=', " = ").parse::<PacketView>(), Ok(view));
        }

        #[test]
        fn no_text_causes_a_panic_and_a_parsed_view_survives_its_text_form(text in "[a-z0-9=, -]{0,60}") {
            if let Ok(view) = text.parse::<PacketView>() {
                prop_assert_eq!(view.to_string().parse::<PacketView>(), Ok(view));
            }
        }
    }

    #[test]
    fn the_longest_text_is_not_too_long() {
        let most = PacketView {
            payload: Payload::First(u32::MAX),
            addresses: Addresses::Anonymised,
            macs: Exposure::Visible,
            ports: Exposure::Zeroed,
            zeroed: ZeroedField::ALL.iter().copied().collect(),
        };
        let with_spaces = most.to_string().replace(',', " , ").replace('=', " = ");
        assert_eq!(with_spaces.parse(), Ok(most));
    }

    #[test]
    fn texts_are_parsed_as_documented() {
        let read = |text: &str| text.parse::<PacketView>().unwrap();
        assert_eq!(read("all"), PacketView::ALL);
        assert_eq!(read("payload=none"), PacketView::HEADERS);
        assert_eq!(read("payload=0"), PacketView::HEADERS);
        assert_eq!(read("payload=all, ttl=visible"), PacketView::ALL);
        assert_eq!(
            read("addresses=anonymised"),
            PacketView::ANONYMISED,
            "what is not named is hidden with addresses"
        );
        assert_eq!(
            read("addresses=anonymised,payload=all,macs=visible"),
            PacketView { payload: Payload::All, macs: Exposure::Visible, ..PacketView::ANONYMISED }
        );
        assert_eq!(
            read("addresses=crypto-pan"),
            PacketView { addresses: Addresses::CryptoPan, ..PacketView::ANONYMISED },
            "which hides as much besides"
        );
        assert_eq!(
            read(" ttl=zeroed , payload=64,vlan=zeroed").to_string(),
            "payload=64,ttl=zeroed,vlan=zeroed"
        );
        assert_eq!(PacketView::ANONYMISED.to_string(), "payload=none,addresses=anonymised,macs=zeroed");
    }

    #[test]
    fn an_invalid_text_is_refused_with_the_valid_alternatives() {
        let refused = |text: &str| text.parse::<PacketView>().unwrap_err().to_string();
        assert!(refused("").starts_with("`` is no part of a view; a part is `all` alone, `payload=`"));
        assert!(refused("headers").contains("`headers` is no part of a view"));
        assert!(refused("all,ttl=zeroed").contains("`all` is no part"));
        assert!(refused("payload=none,").contains("is no part"));
        assert_eq!(
            refused("payload=-1"),
            "`payload` cannot be `-1`; it is `all`, `none`, or a number of bytes, such as `payload=64`"
        );
        assert!(refused("payload=4294967296").contains("cannot be `4294967296`"));
        assert!(refused("payload=").contains("cannot be ``"));
        assert!(
            refused("addresses=hidden").contains("it is `visible`, `anonymised`, `crypto-pan` or `zeroed`")
        );
        assert!(refused("macs=anonymised").contains("it is `visible` or `zeroed`"));
        assert_eq!(refused("ttl=zeroed,ttl=visible"), "`ttl` is given twice; give it once");
        assert_eq!(refused("payload=1,payload=1"), "`payload` is given twice; give it once");
        assert!(refused("\u{1b}[2J").starts_with("`\\u{1b}[2J` is no part"), "no terminal obeys it");
        assert_eq!(
            refused(&" ".repeat(TEXT_MAX + 1)),
            "a view's text has at most 512 bytes; this one has 513"
        );
    }

    #[test]
    fn a_configuration_contains_the_text_of_a_view() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Profile {
            view: PacketView,
        }
        let read: Profile = toml::from_str("view = 'addresses=zeroed,payload=8'").unwrap();
        assert_eq!(
            read.view,
            PacketView { payload: Payload::First(8), addresses: Addresses::Zeroed, ..PacketView::ANONYMISED }
        );
        let refused = toml::from_str::<Profile>("view = 'payload=some'").unwrap_err().to_string();
        assert!(refused.contains("`payload` cannot be `some`"), "{refused}");
        assert_eq!(
            serde_json::to_string(&read).unwrap(),
            r#"{"view":"payload=8,addresses=zeroed,macs=zeroed"}"#
        );
    }
}
