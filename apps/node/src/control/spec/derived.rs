//! The macro that derives from one table of keys the description of a session, the change of a session, and the
//! command-line options for both. [`super`] contains the table.

use super::{LIST_ENTRIES_MAX, SpecError};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Display;
use weir_admission::Name;

/// A key of a session's description or change that has a command-line option.
#[derive(Clone, Copy, Debug)]
pub struct SpecKey {
    /// Key in configuration files and messages.
    pub key: &'static str,
    usage: &'static str,
    help: &'static str,
    /// True for a list: its option can be repeated.
    pub is_list: bool,
}

impl SpecKey {
    pub(super) const fn new(
        key: &'static str,
        usage: &'static str,
        help: &'static str,
        is_list: bool,
    ) -> Self {
        Self { key, usage, help, is_list }
    }

    /// Returns the option's name without dashes, and the placeholder of its value.
    pub fn usage(&self) -> (&'static str, &'static str) {
        self.usage.split_once(' ').unwrap_or((self.usage, ""))
    }

    /// Returns the help text.
    pub fn help(&self) -> &'static str {
        self.help.trim().trim_end_matches('.')
    }
}

/// A description or change of a session, whose keys have command-line options.
pub trait Keyed: Serialize + DeserializeOwned {
    /// Key of the session's name.
    const NAME: &'static str;
    /// True for a change, which needs at least one other key.
    const IS_CHANGE: bool;
    /// The keys that have an option.
    const KEYS: &'static [SpecKey];
}

/// Derives from one table of keys a session's description ([`SessionSpec`](super::SessionSpec)), the change of a session
/// ([`Change`](super::Change)), the application of a change, and the command-line options for description and change.
///
/// - `fixed` keys have no option, and a change cannot contain them.
/// - `values` have a default. Values that are marked with `change` can be changed.
/// - `options` can be missing.
/// - Entries of `lists` are identified by the function after `by`. A change names the entries to remove by the key after
///   `remove`.
macro_rules! session {
    (
        fixed { $($(#[$fm:meta])* $f:ident: $ft:ty;)+ }
        values { $(#[doc = $vd:literal] #[serde($($vs:tt)+)] $v:ident: $vt:ty = $vv:expr, $vu:literal $(, $(#[$cm:meta])* change $ch:ident)?;)+ }
        options { $(#[doc = $od:literal] #[serde($($os:tt)+)] $o:ident: $ot:ty, $ou:literal;)+ }
        lists { $(
            #[doc = $ld:literal] #[serde($($ls:tt)+)] $(#[create($($lc:tt)+)])? $lk:literal $l:ident: $lt:ty, $lu:literal,
            $what:literal by $by:expr, $lh:literal $(, remove { #[doc = $gd:literal] $g:ident: $gt:ty, $gu:literal })?;
        )+ }
    ) => {
        /// The description of a session: its reservations and limits, its channels and output channels, and its modules.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct SessionSpec {
            $($(#[$fm])* pub $f: $ft,)+
            $(#[doc = $vd] #[serde($($vs)+)] pub $v: $vt,)+
            $(#[doc = $od] #[serde(default, skip_serializing_if = "Option::is_none", $($os)+)] pub $o: Option<$ot>,)+
            $(#[doc = $ld] #[serde(rename = $lk, default, $($ls)+ $(, $($lc)+)?)] pub $l: Vec<$lt>,)+
        }
        /// A change of a session. Keys that are left out do not change. An entry of a list replaces the present entry
        /// of its name, or is added.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct Change {
            #[doc = "The session."] #[serde(with = "quantity::text")] pub session: Name,
            /// Changed limits, with a key for each limited [resource](Resource).
            #[serde(flatten, skip_deserializing, serialize_with = "resource_keys::session")] pub limits: Amounts,
            $($(#[doc = $vd] #[serde(default, skip_serializing_if = "Option::is_none")] $(#[$cm])* pub $ch: Option<$vt>,)?)+
            $(#[doc = $od] #[serde(default, skip_serializing_if = "Option::is_none", $($os)+)] pub $o: Option<$ot>,)+
            $(#[doc = $ld] #[serde(rename = $lk, default, skip_serializing_if = "Vec::is_empty", $($ls)+)] pub $l: Vec<$lt>,
            $(#[doc = $gd] #[serde(default, skip_serializing_if = "Vec::is_empty", with = "bounded_list::texts")] pub $g: Vec<$gt>,)?)+
        }
        impl SessionSpec {
            fn described($($f: $ft),+) -> Self { Self { $($f,)+ $($v: $vv,)+ $($o: None,)+ $($l: Vec::new(),)+ } }
            fn apply(&mut self, change: &Change) -> Result<(), SpecError> {
                $($(if let Some(value) = &change.$ch { self.$ch.clone_from(value); })?)+
                $(if change.$o.is_some() { self.$o.clone_from(&change.$o); })+
                $(derived::change_list(&self.name, $what, &mut self.$l, &[&[][..] $(, &change.$g[..])?].concat(), &change.$l, $by)?;)+ Ok(())
            }
        }
        impl Keyed for SessionSpec {
            const NAME: &'static str = "name"; const IS_CHANGE: bool = false;
            const KEYS: &'static [SpecKey] = &[$(SpecKey::new(stringify!($v), $vu, $vd, false),)+ $(SpecKey::new(stringify!($o), $ou, $od, false),)+ $(SpecKey::new($lk, $lu, $ld, true),)+];
        }
        impl Keyed for Change {
            const NAME: &'static str = "session"; const IS_CHANGE: bool = true;
            const KEYS: &'static [SpecKey] = &[$($(SpecKey::new(stringify!($ch), $vu, $vd, false),)?)+ $(SpecKey::new(stringify!($o), $ou, $od, false),)+
                $(SpecKey::new($lk, $lu, concat!($ld, $lh), true), $(SpecKey::new(stringify!($g), $gu, $gd, true),)?)+];
        }
    };
}

pub(super) use session;

/// Removes the entries named in `removed` from a list, and then adds the entries in `added`. An added entry replaces
/// the present entry of its name. The number of changes is limited, because each of them is compared with each entry
/// of the list.
///
/// # Errors
///
/// An entry to remove is missing, or there are too many changes.
pub(super) fn change_list<T: Clone, K: PartialEq + Display>(
    session: &Name,
    what: &'static str,
    list: &mut Vec<T>,
    removed: &[K],
    added: &[T],
    name: fn(&T) -> &K,
) -> Result<(), SpecError> {
    let count = removed.len().max(added.len());
    if count > LIST_ENTRIES_MAX {
        return Err(SpecError::TooMany { session: session.clone(), what, count });
    }
    for removed_name in removed {
        let Some(at) = list.iter().position(|entry| name(entry) == removed_name) else {
            return Err(SpecError::Missing {
                session: session.clone(),
                what: "change",
                name: session.to_string(),
                missing: what,
                given: removed_name.to_string(),
                known: list.iter().map(|entry| name(entry).to_string()).collect(),
            });
        };
        list.remove(at);
    }
    for new in added {
        match list.iter_mut().find(|entry| name(entry) == name(new)) {
            Some(entry) => *entry = new.clone(),
            None => list.push(new.clone()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::{Change, ChannelSpec, SessionSpec};

    fn change(text: &str) -> Change {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn lists_of_a_change_are_bounded_before_they_are_compared() {
        let spec: SessionSpec = toml::from_str("name = \"a\"").unwrap();
        let channel: ChannelSpec = toml::from_str("interface = \"e\"").unwrap();
        let channels = |count: u32| -> Vec<ChannelSpec> {
            let name = |number| Name::new(&format!("c{number}")).unwrap();
            (0..count).map(|number| ChannelSpec { name: name(number), ..channel.clone() }).collect()
        };
        let with = |count| Change { channels: channels(count), ..change(r#"{"session": "a"}"#) };
        assert_eq!(spec.changed(&with(64)).unwrap().channels.len(), 64);
        let error = spec.changed(&with(65)).unwrap_err().to_string();
        assert_eq!(error, "session `a` has 65 channels; 64 is the most");
        let gone = Change {
            remove_offer: channels(65).into_iter().map(|channel| channel.name).collect(),
            ..change(r#"{"session": "a"}"#)
        };
        let error = spec.changed(&gone).unwrap_err().to_string();
        assert_eq!(error, "session `a` has 65 offers; 64 is the most");
    }

    #[test]
    fn missing_keys_stay_unchanged_and_removed_parts_have_to_exist() {
        let text =
            "name = \"a\"\nmemory = \"8 MiB\"\npriority = 3\nread = [\"geo\", \"t=old\"]\npublish = [\"p\"]";
        let spec: SessionSpec = toml::from_str(text).unwrap();
        let same = spec.changed(&change(r#"{"session": "a"}"#)).unwrap();
        assert_eq!(same, SessionSpec { processors: spec.all_processors(), ..spec.clone() });
        let grants = |spec: &SessionSpec| {
            let text = |grants: &[crate::control::table_grant::TableGrant]| {
                grants.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            (text(&spec.read), text(&spec.publish))
        };
        // By the names that its modules use. Entries are removed before others are added.
        let other = change(
            r#"{"session": "a", "read": ["t=new", "more"], "remove_read": ["geo"], "publish": ["q"], "remove_publish": ["p"],
                "profile": "strict", "priority": 9}"#,
        );
        let now = spec.changed(&other).unwrap();
        assert_eq!(grants(&now), (vec!["t=new".to_owned(), "more".to_owned()], vec!["q".to_owned()]));
        assert_eq!((now.priority, now.profile.as_ref().map(Name::as_str)), (9, Some("strict")));
        for (revoked, says) in [
            ("\"remove_read\": [\"old\"]", "there is no readable table `old`; there is geo, t"),
            ("\"remove_publish\": [\"geo\"]", "there is no own table `geo`; there is p"),
            ("\"remove_offer\": [\"s\"]", "there is no offer `s`; there are none"),
        ] {
            let error = spec.changed(&change(&format!("{{\"session\": \"a\", {revoked}}}"))).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
