//! From the table of a session's keys: its description, a change of it, and the options by which command lines state them.

use super::{PARTS_MAX, SpecError};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Display;
use weir_admission::Name;

/// A key that a command line can state.
#[derive(Clone, Copy, Debug)]
pub struct SpecKey {
    /// The key, as configuration files and messages have it.
    pub key: &'static str,
    usage: &'static str,
    help: &'static str,
    /// The key holds a list, and its option can be given several times.
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

    /// The option's name, and the placeholder of its value.
    pub fn usage(&self) -> (&'static str, &'static str) {
        self.usage.split_once(' ').unwrap_or((self.usage, ""))
    }

    /// The meaning of the option.
    pub fn help(&self) -> &'static str {
        self.help.trim().trim_end_matches('.')
    }
}

/// A structure whose keys a command line can state.
pub trait Keyed: Serialize + DeserializeOwned {
    /// The key that names the session.
    const NAME: &'static str;
    /// It changes something: one of its keys has to be stated.
    const IS_CHANGE: bool;
    /// The keys that have an option.
    const KEYS: &'static [SpecKey];
}

/// Makes of one table of keys a session's description, its change, the effect of a change, and the options for both.
///
/// `fixed` keys have no option and do not change. `values` have a default, and with `change` they can change. `options` can be missing. Entries of `lists` are told apart by what follows `by`;
/// changes name under `gone` those that go.
macro_rules! session {
    (
        fixed { $($(#[$fm:meta])* $f:ident: $ft:ty;)+ }
        values { $(#[doc = $vd:literal] #[serde($($vs:tt)+)] $v:ident: $vt:ty = $vv:expr, $vu:literal $(, $(#[$cm:meta])* change $ch:ident)?;)+ }
        options { $(#[doc = $od:literal] #[serde($($os:tt)+)] $o:ident: $ot:ty, $ou:literal;)+ }
        lists { $(
            #[doc = $ld:literal] #[serde($($ls:tt)+)] $(#[create($($lc:tt)+)])? $lk:literal $l:ident: $lt:ty, $lu:literal,
            $what:literal by $by:expr, $lh:literal $(, gone { #[doc = $gd:literal] $g:ident: $gt:ty, $gu:literal })?;
        )+ }
    ) => {
        /// A session: a principal with reserved CPU and memory, the packets that it gets, and the modules that it runs on them.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct SessionSpec {
            $($(#[$fm])* pub $f: $ft,)+
            $(#[doc = $vd] #[serde($($vs)+)] pub $v: $vt,)+
            $(#[doc = $od] #[serde(default, skip_serializing_if = "Option::is_none", $($os)+)] pub $o: Option<$ot>,)+
            $(#[doc = $ld] #[serde(rename = $lk, default, $($ls)+ $(, $($lc)+)?)] pub $l: Vec<$lt>,)+
        }
        /// A change of a session; what is missing stays. An entry of a list takes the place of the one with its name, or is new.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct Change {
            #[doc = "The session."] #[serde(with = "quantity::text")] pub session: Name,
            /// Limits: a key for each [resource](Resource) that has one.
            #[serde(flatten, skip_deserializing, serialize_with = "amounts::session")] pub limits: Amounts,
            $($(#[doc = $vd] #[serde(default, skip_serializing_if = "Option::is_none")] $(#[$cm])* pub $ch: Option<$vt>,)?)+
            $(#[doc = $od] #[serde(default, skip_serializing_if = "Option::is_none", $($os)+)] pub $o: Option<$ot>,)+
            $(#[doc = $ld] #[serde(rename = $lk, default, skip_serializing_if = "Vec::is_empty", $($ls)+)] pub $l: Vec<$lt>,
            $(#[doc = $gd] #[serde(default, skip_serializing_if = "Vec::is_empty", with = "counted::texts")] pub $g: Vec<$gt>,)?)+
        }
        impl SessionSpec {
            fn described($($f: $ft),+) -> Self { Self { $($f,)+ $($v: $vv,)+ $($o: None,)+ $($l: Vec::new(),)+ } }
            fn take(&mut self, change: &Change) -> Result<(), SpecError> {
                $($(if let Some(value) = &change.$ch { self.$ch.clone_from(value); })?)+
                $(if change.$o.is_some() { self.$o.clone_from(&change.$o); })+
                $(derived::exchange(&self.name, $what, &mut self.$l, &[&[][..] $(, &change.$g[..])?].concat(), &change.$l, $by)?;)+ Ok(())
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

/// Takes out of a list what is to go, and puts into it what is to come, in the place of what has its name. Each is compared with each, so there is a bounded number of them.
///
/// # Errors
///
/// What is to go is not there, or there are too many.
pub(super) fn exchange<T: Clone, K: PartialEq + Display>(
    session: &Name,
    what: &'static str,
    list: &mut Vec<T>,
    gone: &[K],
    come: &[T],
    name: fn(&T) -> &K,
) -> Result<(), SpecError> {
    let count = gone.len().max(come.len());
    if count > PARTS_MAX {
        return Err(SpecError::TooMany { session: session.clone(), what, count });
    }
    for gone in gone {
        let Some(at) = list.iter().position(|there| name(there) == gone) else {
            return Err(SpecError::Missing {
                session: session.clone(),
                what: "change",
                name: session.to_string(),
                missing: what,
                given: gone.to_string(),
                known: list.iter().map(|there| name(there).to_string()).collect(),
            });
        };
        list.remove(at);
    }
    for new in come {
        match list.iter_mut().find(|there| name(there) == name(new)) {
            Some(there) => *there = new.clone(),
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
    fn what_comes_and_goes_at_once_is_counted_before_it_is_compared() {
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
            withdraw: channels(65).into_iter().map(|channel| channel.name).collect(),
            ..change(r#"{"session": "a"}"#)
        };
        let error = spec.changed(&gone).unwrap_err().to_string();
        assert_eq!(error, "session `a` has 65 offers; 64 is the most");
    }

    #[test]
    fn what_is_not_said_stays_and_what_goes_has_to_be_there() {
        let text =
            "name = \"a\"\nmemory = \"8 MiB\"\npriority = 3\nread = [\"geo\", \"t=old\"]\npublish = [\"p\"]";
        let spec: SessionSpec = toml::from_str(text).unwrap();
        let same = spec.changed(&change(r#"{"session": "a"}"#)).unwrap();
        assert_eq!(same, SessionSpec { processors: spec.all_processors(), ..spec.clone() });
        let grants = |spec: &SessionSpec| {
            let text = |grants: &[crate::sessions::tables::TableGrant]| {
                grants.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            (text(&spec.read), text(&spec.publish))
        };
        // By the names that its modules have for them; what goes does so before what comes.
        let other = change(
            r#"{"session": "a", "read": ["t=new", "more"], "revoke_read": ["geo"], "publish": ["q"], "revoke_publish": ["p"],
                "profile": "strict", "priority": 9}"#,
        );
        let now = spec.changed(&other).unwrap();
        assert_eq!(grants(&now), (vec!["t=new".to_owned(), "more".to_owned()], vec!["q".to_owned()]));
        assert_eq!((now.priority, now.profile.as_ref().map(Name::as_str)), (9, Some("strict")));
        for (revoked, says) in [
            ("\"revoke_read\": [\"old\"]", "there is no readable table `old`; there is geo, t"),
            ("\"revoke_publish\": [\"geo\"]", "there is no own table `geo`; there is p"),
            ("\"withdraw\": [\"s\"]", "there is no offer `s`; there are none"),
        ] {
            let error = spec.changed(&change(&format!("{{\"session\": \"a\", {revoked}}}"))).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
