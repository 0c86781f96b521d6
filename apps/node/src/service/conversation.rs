//! What is said with one client, whatever it is spoken with over: its requests, one after the other, and what they are answered with.

use super::hearing::{Heard, hear};
use super::pace::Pace;
use super::room::Rooms;
use crate::audit::Asked;
use crate::authority::{Asker, Refusal};
use crate::daemon::{Daemon, Telling};
use crate::error::NodeError;
use crate::followers::{Following, Told};
use crate::protocol::{Answer, Ask, PART_BYTES_MAX, Reply, Request, VERSION};
use crate::share::Share;
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weir_session::Name;
use weir_trust::credential::PrefixId;
use weir_units::Bytes;

/// A client that says nothing for so long, or takes nothing, is left.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The shortest time between two snapshots for one client.
const WATCH_MIN: Duration = Duration::from_millis(50);
/// The longest time for which records go to a follower after the session's owner has taken the right back, but for the time until the next row.
const SHARE_LOOK: Duration = Duration::from_millis(100);

/// What a client is spoken with over.
pub(super) trait Line: Read + Write {
    /// From then on reading fails with [`io::ErrorKind::TimedOut`], in however small pieces the client sends.
    fn be_patient_until(&mut self, then: Instant);

    /// Whether the client has closed its side. Asked while nothing is expected of it: nobody else would notice on a quiet stream.
    fn is_gone(&mut self) -> bool;
}

/// What the conversations of one door have in common.
pub(super) struct Office {
    pub(super) daemon: Arc<Daemon>,
    /// The node stops.
    pub(super) is_over: Arc<AtomicBool>,
    /// Clients that there are,
    pub(super) clients: Arc<AtomicUsize>,
    /// bytes of files that they send,
    bodies: Rooms,
    /// and how often they ask.
    pace: Pace,
}

impl Office {
    pub(super) fn new(daemon: &Arc<Daemon>, is_over: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            daemon: Arc::clone(daemon),
            is_over: Arc::clone(is_over),
            clients: Arc::default(),
            bodies: Rooms::default(),
            pace: Pace::new(Instant::now()),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

pub(super) fn say(line: &mut impl Write, reply: Reply) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(&Answer { weir: VERSION, reply })?;
    bytes.push(b'\n');
    line.write_all(&bytes)?;
    line.flush()
}

/// Says no: to somebody with whom there is no conversation, it is all that is said.
pub(super) fn refuse(line: &mut impl Write, why: &dyn Display) -> io::Result<()> {
    say(line, Reply::Refused { why: why.to_string() })
}

/// What a session is called.
struct Names {
    /// By the node,
    node: Option<Name>,
    /// and by whoever asks.
    asker: Option<Name>,
}

impl Names {
    /// An answer in which the session has the name that it was asked about by.
    fn as_asked(&self, answer: Reply) -> Reply {
        let (Some(node), Some(asker)) = (&self.node, &self.asker) else { return answer };
        if node == asker {
            return answer;
        }
        // The node's name for a holder's session is like no other word: it is made of a hash.
        let renamed = |text: String| text.replace(node.as_str(), asker.as_str());
        match answer {
            Reply::Done { notes } => Reply::Done { notes: notes.into_iter().map(renamed).collect() },
            Reply::Refused { why } => Reply::Refused { why: renamed(why) },
            other => other,
        }
    }
}

/// What is said with a client.
pub(super) struct Conversation<'a, L> {
    line: BufReader<L>,
    asker: Asker,
    /// By whose right he asks: see [`Asker::chain`].
    chain: Vec<PrefixId>,
    office: &'a Office,
}

impl<'a, L: Line> Conversation<'a, L> {
    pub(super) fn new(line: L, asker: Asker, office: &'a Office) -> Self {
        Self { line: BufReader::new(line), chain: asker.chain(), asker, office }
    }

    fn be_patient(&mut self) {
        self.line.get_mut().be_patient_until(Instant::now() + PATIENCE);
    }

    fn say(&mut self, reply: Reply) -> io::Result<()> {
        say(self.line.get_mut(), reply)
    }

    fn refuse(&mut self, why: &dyn Display) -> io::Result<()> {
        refuse(self.line.get_mut(), why)
    }

    /// Answers until the client goes, says something that is no request, or the node stops.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        while !self.office.is_over() {
            self.be_patient();
            if self.line.fill_buf()?.is_empty() {
                return Ok(());
            }
            // The whole request, from its first byte on.
            self.be_patient();
            let (ask, len) = match hear(&mut self.line)? {
                Heard::Ask(ask, len) => (ask, len),
                Heard::End => return Ok(()),
                Heard::Wrong(why) => return self.refuse(&why),
            };
            let sent = match self.admitted(&ask, len) {
                Ok(sent) => sent,
                // Nothing follows it: there can be another request.
                Err(why) if len == 0 => {
                    self.refuse(&why)?;
                    continue;
                }
                Err(why) => return self.refuse(&why),
            };
            // Until it is answered.
            let (of, bytes) = (self.chain.first().copied(), sent.as_ref().map_or(len, |file| file.len()));
            let Some(_room) = self.office.bodies.take(of, bytes) else {
                let why = "so much is being sent to the node, by others or under your credential, that there is no room for this file; try again";
                return self.refuse(&why);
            };
            let body = match sent {
                Some(file) => Some(file.to_vec()),
                None if len == 0 => None,
                None => {
                    let mut body = vec![0; len];
                    self.line.read_exact(&mut body)?;
                    Some(body)
                }
            };
            if !self.answer(ask.ask, body)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a request is looked at, before its file has come: not too often, and not with a file that is too long or of no use. The file, where it has come before.
    fn admitted(&self, ask: &Ask, len: usize) -> Result<Option<Arc<Vec<u8>>>, String> {
        let enter = |why: &str| {
            self.office.daemon.decided(Asked::of(&self.asker, &ask.ask, None).refused(why));
        };
        if let Err(too_often) = self.office.pace.take(&self.chain, Instant::now()) {
            // When to ask again is different each time, and it is one kind.
            enter("more was asked than is answered");
            return Err(too_often.to_string());
        }
        if let Some(why) = self.not_for_him(&ask.ask, len) {
            enter(&why);
            return Err(why);
        }
        self.sent_before(ask)
    }

    /// Why the file of so many bytes that comes with a holder's request is not even taken.
    fn not_for_him(&self, ask: &Request, len: usize) -> Option<String> {
        if len == 0 || matches!(self.asker, Asker::Operator(_)) {
            return None;
        }
        match ask {
            Request::Load { .. } if len > PART_BYTES_MAX => {
                let most = Bytes(PART_BYTES_MAX as u64);
                Some(format!(
                    "a file of more than {most} is sent in parts, before the request that it belongs to"
                ))
            }
            Request::PutTable { .. } => {
                let permitted = self.office.daemon.permit(&self.asker, ask.clone(), None);
                permitted.err().map(|refusal| refusal.to_string())
            }
            _ => None,
        }
    }

    /// The file of a request that has come before, if it is one with such a file.
    fn sent_before(&self, ask: &Ask) -> Result<Option<Arc<Vec<u8>>>, String> {
        let Some(file) = &ask.file else { return Ok(None) };
        if ask.body > 0 || !matches!(ask.ask, Request::Load { .. }) {
            return Err(
                "only a module to be loaded can be a file that was sent before, and it has no body then"
                    .to_owned(),
            );
        }
        let sent = self.office.daemon.uploads.file(&self.chain, file, Instant::now());
        sent.map(Some).map_err(|error| error.to_string())
    }

    /// Answers a request. Says whether there can be another.
    fn answer(&mut self, ask: Request, body: Option<Vec<u8>>) -> io::Result<bool> {
        let daemon = &self.office.daemon;
        let names = Names { node: daemon.session_of(&self.asker, &ask), asker: ask.session().cloned() };
        let asked = Asked::of(&self.asker, &ask, names.node.as_ref());
        let permitted = match daemon.permit(&self.asker, ask, body.as_deref()) {
            Ok(permitted) => permitted,
            Err(why) => {
                daemon.decided(asked.refused(&why.to_string()));
                return self.refuse(&why).map(|()| true);
            }
        };
        // Whether it is the asker's right that was too small, and not the node.
        let is_refusal = Cell::new(false);
        let done = || Reply::Done { notes: Vec::new() };
        let refused = |why: &dyn Display| Reply::Refused { why: why.to_string() };
        let is_operator = matches!(self.asker, Asker::Operator(_));
        let failed = |error: &NodeError| {
            is_refusal.set(matches!(error, NodeError::NotPermitted(_)));
            if is_operator { refused(error) } else { refused(&error.for_holder()) }
        };
        let reply = |result: Result<(), NodeError>| match result {
            Ok(()) => done(),
            Err(error) => failed(&error),
        };
        let noted = |result: Result<String, NodeError>| match result {
            Ok(note) => Reply::Done { notes: vec![note] },
            Err(error) => failed(&error),
        };
        let looks = matches!(
            permitted.ask,
            Request::Show
                | Request::Upload(_)
                | Request::Explain(_)
                | Request::Ledger(_)
                | Request::Revocations
        );
        let (owner, by) = (permitted.owner, permitted.by);
        let answer = match permitted.ask {
            Request::Show => Reply::Snapshot(Box::new(daemon.snapshot_for(&self.asker))),
            Request::Watch { every } => {
                daemon.decided(asked.answered(&done(), false));
                let every = Duration::from_nanos(every.0).clamp(WATCH_MIN, PATIENCE);
                while !self.has_ended()? {
                    let snapshot = self.office.daemon.snapshot_for(&self.asker);
                    self.say(Reply::Snapshot(Box::new(snapshot)))?;
                    std::thread::sleep(every);
                }
                return Ok(false);
            }
            Request::Create(spec) => reply(daemon.create(spec, owner)),
            Request::Change(change) => reply(daemon.change(&change, (owner, by))),
            Request::Close { session } => reply(daemon.close(&session)),
            Request::Load { session, module, signatures } => noted(
                daemon
                    .load(&session, (owner, by), &module, body, &signatures)
                    .map(|name| format!("module {name} runs in session {session}")),
            ),
            Request::Upload(part) => {
                let bytes = body.unwrap_or_default();
                match daemon.uploads.take(&self.chain, &part, &bytes, Instant::now()) {
                    Ok(bytes) => Reply::Uploaded { bytes },
                    Err(error) => refused(&error),
                }
            }
            Request::Unload { session, module } => reply(daemon.unload(&session, &module)),
            Request::PutTable { table } => reply(daemon.put_table(&table, &body.unwrap_or_default())),
            Request::RemoveTable { table } => reply(daemon.remove_table(&table)),
            Request::Rate(rate) => noted(daemon.change_rate(&rate)),
            Request::Explain(what) => match daemon.explain(&self.asker, *what, body.as_deref()) {
                Ok(explained) => Reply::Explained(Box::new(explained)),
                Err(error) => {
                    is_refusal.set(true);
                    refused(&error)
                }
            },
            Request::Ledger(ask) => match daemon.tell(&self.asker, &ask) {
                Ok(telling) => {
                    daemon.decided(asked.answered(&done(), false));
                    return self.tell(telling);
                }
                Err(error) => refused(&error),
            },
            Request::Revoke => {
                let shown = super::delivery::shown_by(&self.asker);
                super::delivery::take(daemon, shown, &body.unwrap_or_default())
            }
            Request::Revocations => Reply::Revocations(daemon.revocations_for(&self.asker)),
            Request::Reload => match daemon.reload() {
                Ok(notes) => Reply::Done { notes },
                Err(error) => refused(&error),
            },
            Request::Follow { session, module, stream } => {
                let following = daemon.with_node(|node| node.follow(&session, &module, &stream));
                match following {
                    Ok(Some(following)) => {
                        daemon.decided(asked.answered(&done(), false));
                        self.say(done())?;
                        self.follow(&following, &session, by.as_ref())?;
                        if !self.has_ended_over(&session, by.as_ref())? {
                            let gone = format_args!(
                                "its records end here: module `{module}` was unloaded, or its session closed"
                            );
                            self.refuse(&gone)?;
                        }
                        return Ok(false);
                    }
                    Ok(None) => refused(&format_args!(
                        "module `{module}` has no stream `{stream}`; `weir session show {session}` lists them"
                    )),
                    Err(error) => refused(&error),
                }
            }
        };
        if !looks {
            daemon.has_changed();
        }
        daemon.decided(asked.answered(&answer, is_refusal.get()));
        self.say(names.as_asked(answer)).map(|()| true)
    }

    /// What the ledger says, in pieces. Says whether there can be another request.
    fn tell(&mut self, mut telling: Telling<'_>) -> io::Result<bool> {
        loop {
            if self.has_ended()? {
                return Ok(false);
            }
            let reply = match telling.next() {
                Ok(Some(entries)) => entries,
                Ok(None) => return self.say(Reply::Done { notes: telling.notes() }).map(|()| true),
                Err(why) => return self.refuse(&why).map(|()| true),
            };
            self.say(reply)?;
        }
    }

    /// Whether there is nothing more to say to somebody who is told again and again, because the node stops or he has no right any more. Then he is told that.
    fn has_ended(&mut self) -> io::Result<bool> {
        if self.office.is_over() {
            return self.refuse(&"the node stops").map(|()| true);
        }
        match self.office.daemon.still(&self.asker) {
            Ok(()) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }

    /// The same of somebody who is told of a session, who may have no right over it any more.
    fn has_ended_over(&mut self, session: &Name, by: Option<&Share>) -> io::Result<bool> {
        if self.has_ended()? {
            return Ok(true);
        }
        match self.office.daemon.still_over(&self.asker, session, by) {
            // What ended with its session is said in other words.
            Ok(()) | Err(Refusal::NoSession(_)) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }

    /// Until nothing more comes, or is for him.
    fn follow(&mut self, following: &Following, session: &Name, by: Option<&Share>) -> io::Result<()> {
        let mut looked = Instant::now();
        while !self.office.is_over() && self.office.daemon.still(&self.asker).is_ok() {
            // The node is held for that, so it is not done for each row.
            if by.is_some() && looked.elapsed() >= SHARE_LOOK {
                looked = Instant::now();
                if self.office.daemon.still_over(&self.asker, session, by).is_err() {
                    return Ok(());
                }
            }
            match following.next(Duration::from_millis(200)) {
                Ok(Told { reply, load }) => {
                    self.say(reply)?;
                    drop(load);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.line.get_mut().is_gone() {
                        return Ok(());
                    }
                }
                // The module is gone, and with it what would follow.
                Err(RecvTimeoutError::Disconnected) => {
                    let rows = following.missed();
                    return if rows > 0 { self.say(Reply::Missed { rows }) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }
}
