//! Entries about idle sessions: many sessions in one line.

use super::{ByteSeconds, SessionId};
use serde::{Deserialize, Deserializer, Serialize};
use weir_admission::Name;

/// The most idle sessions in one entry, so that the entry fits into a line.
pub const IDLE_MAX: usize = 400;

/// Sessions that used nothing but their reserved memory in an interval. Most sessions of a node are idle most of the
/// time. They share an entry, in which each session takes little more space than its name.
///
/// An entry has 1 to [`IDLE_MAX`] sessions, in ascending order of memory x time, and then of identity. So the same
/// sessions always give the same entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Idle(Vec<MemoryGroup>);

/// Idle sessions with the same memory x time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemoryGroup {
    #[serde(flatten)]
    memory: ByteSeconds,
    #[serde(with = "pairs")]
    sessions: Vec<SessionId>,
}

impl Idle {
    /// Returns the entries for these sessions, each given with its memory x time. Each entry has at most [`IDLE_MAX`]
    /// sessions; without sessions there is no entry.
    pub fn entries(sessions: impl IntoIterator<Item = (SessionId, ByteSeconds)>) -> Vec<Idle> {
        let (mut sessions, mut entries) = (sessions.into_iter(), Vec::new());
        loop {
            let mut part: Vec<_> = sessions.by_ref().take(IDLE_MAX).collect();
            if part.is_empty() {
                return entries;
            }
            part.sort_by(|(a, memory_a), (b, memory_b)| (memory_a, a).cmp(&(memory_b, b)));
            let mut groups: Vec<MemoryGroup> = Vec::new();
            for (session, memory) in part {
                match groups.last_mut() {
                    Some(group) if group.memory == memory => group.sessions.push(session),
                    _ => groups.push(MemoryGroup { memory, sessions: vec![session] }),
                }
            }
            entries.push(Idle(groups));
        }
    }

    /// Returns the number of sessions.
    pub fn count(&self) -> usize {
        self.0.iter().map(|group| group.sessions.len()).sum()
    }

    /// Returns each session with its memory x time.
    pub fn iter(&self) -> impl Iterator<Item = (&SessionId, ByteSeconds)> {
        self.0.iter().flat_map(|group| group.sessions.iter().map(|session| (session, group.memory)))
    }

    /// Returns each session with its memory x time, by value.
    pub fn into_sessions(self) -> impl DoubleEndedIterator<Item = (SessionId, ByteSeconds)> {
        let with_memory =
            |group: MemoryGroup| group.sessions.into_iter().map(move |session| (session, group.memory));
        self.0.into_iter().flat_map(with_memory)
    }

    /// Returns the part of the entry about sessions with this name; `None` if there are none.
    #[must_use]
    pub fn named(self, name: &Name) -> Option<Idle> {
        self.map_sessions(|session| (session.name == *name).then_some(session))
    }

    /// Maps each session's identity, and drops the sessions that map to `None`. Returns `None` if no session is left.
    #[must_use]
    pub fn map_sessions(self, map: impl Fn(SessionId) -> Option<SessionId>) -> Option<Idle> {
        // Mapping adds no sessions, so the sessions still fit into one entry.
        Self::entries(self.into_sessions().filter_map(|(session, memory)| Some((map(session)?, memory))))
            .pop()
    }

    /// Returns true if number and order of the sessions are as written by [`Idle::entries`].
    fn is_legal(&self) -> bool {
        let is_sorted_group = |group: &MemoryGroup| !group.sessions.is_empty() && group.sessions.is_sorted();
        (1..=IDLE_MAX).contains(&self.count())
            && self.0.iter().all(is_sorted_group)
            && self.0.is_sorted_by(|a, b| a.memory < b.memory)
    }
}

impl<'de> Deserialize<'de> for Idle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let idle = Self(Vec::deserialize(deserializer)?);
        let refuse = || serde::de::Error::custom("not as idle sessions are written");
        idle.is_legal().then_some(idle).ok_or_else(refuse)
    }
}

/// Writes and reads a session as `["alice",3]`. This form is short, because a line has many sessions.
mod pairs {
    use super::{Name, SessionId};
    use serde::de::{Deserialize, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(sessions: &[SessionId], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(sessions.iter().map(|session| (session.name.as_str(), session.id)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<SessionId>, D::Error> {
        let pairs = Vec::<(String, u64)>::deserialize(deserializer)?;
        let session = |(name, id): (String, u64)| Some(SessionId { name: Name::new(&name).ok()?, id });
        let sessions: Option<Vec<SessionId>> = pairs.into_iter().map(session).collect();
        sessions.ok_or_else(|| D::Error::custom("no name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::{Bytes, Nanos};

    fn session(name: &str, id: u64, bytes: u64) -> (SessionId, ByteSeconds) {
        (
            SessionId { name: Name::new(name).unwrap(), id },
            ByteSeconds::held_for(Bytes(bytes), Nanos(1_500_000_000)),
        )
    }

    #[test]
    fn the_same_sessions_give_the_same_entry_which_is_read_again() {
        let one = [session("b", 2, 8), session("a", 1, 8), session("c", 3, 1)];
        let mut other = one.clone();
        other.reverse();
        let (one, other) = (Idle::entries(one), Idle::entries(other));
        assert_eq!((one.len(), &one), (1, &other));
        let text = serde_json::to_string(&one[0]).unwrap();
        assert_eq!(
            text,
            r#"[{"memory_byte_s":1,"memory_byte_ns":500000000,"sessions":[["c",3]]},{"memory_byte_s":12,"sessions":[["a",1],["b",2]]}]"#
        );
        assert_eq!(serde_json::from_str::<Idle>(&text).unwrap(), one[0]);
        let all: Vec<_> = one[0].iter().map(|(session, memory)| (session.clone(), memory)).collect();
        assert_eq!(all, [session("c", 3, 1), session("a", 1, 8), session("b", 2, 8)]);
        assert_eq!(one[0].clone().into_sessions().collect::<Vec<_>>(), all);
        assert_eq!(one[0].clone().named(&Name::new("a").unwrap()), Idle::entries([session("a", 1, 8)]).pop());
        assert_eq!(one[0].clone().named(&Name::new("d").unwrap()), None);
    }

    #[test]
    fn each_entry_has_at_most_the_maximum_of_sessions() {
        for (sessions, entries) in [(0, 0), (1, 1), (IDLE_MAX, 1), (IDLE_MAX + 1, 2), (3 * IDLE_MAX, 3)] {
            let all = Idle::entries((0..sessions as u64).map(|id| session("a", id, id % 7)));
            assert_eq!((all.len(), all.iter().map(Idle::count).sum()), (entries, sessions));
            assert!(all.iter().all(Idle::is_legal));
        }
    }

    #[test]
    fn another_order_of_idle_sessions_is_refused() {
        let group =
            |memory: u64, sessions: &str| format!(r#"{{"memory_byte_s":{memory},"sessions":[{sessions}]}}"#);
        let (a, b) = (r#"["a",1]"#, r#"["b",2]"#);
        let read = |groups: &[String]| serde_json::from_str::<Idle>(&format!("[{}]", groups.join(",")));
        assert!(read(&[group(1, a), group(2, b)]).is_ok());
        for wrong in [
            vec![],
            vec![group(1, "")],
            vec![group(1, a), group(2, "")],
            vec![group(2, a), group(1, b)],
            vec![group(1, a), group(1, b)],
            vec![group(1, &format!("{b},{a}"))],
            vec![group(1, r#"["A",1]"#)],
            vec![group(1, r#"["a",-1]"#)],
            vec![group(1, r#"["a",1,1]"#)],
            vec![group(1, &vec![a; IDLE_MAX + 1].join(","))],
        ] {
            assert!(read(&wrong).is_err(), "{wrong:?}");
        }
    }
}
