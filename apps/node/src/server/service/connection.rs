//! What is said with one client, whatever it is spoken with over: its requests, one after the other, and what they are answered with.

use super::hearing::{Heard, listen, understand};
use super::pace::{RequestRateLimiter, cost_of, cost_of_time, more_for};
use super::room::UploadQuota;
use crate::control::audit::PendingDecision;
use crate::control::authority::{Asker, RequestRefusal};
use crate::control::protocol::{Ask, ControlRequest, PART_BYTES_MAX, Reply, Response, VERSION};
use crate::control::share::ShareGrant;
use crate::error::NodeError;
use crate::server::daemon::{Daemon, LedgerQuery};
use crate::server::requests::RequestPermit;
use crate::server::turns;
use crate::sessions::followers::{FollowedRecord, Following};
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_sandbox::thread_time;
use weir_trust::credential::PrefixId;
use weir_units::{Bytes, Nanos};

/// A client that says nothing for so long, or takes nothing, is left.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The shortest time between two snapshots for one client.
const WATCH_MIN: Duration = Duration::from_millis(50);
/// The longest time for which records go to a follower after the session's owner has taken the right back, but for the time until the next row.
const SHARE_LOOK: Duration = Duration::from_millis(100);
/// The interval in which the time is accounted that it takes to tell a follower of records.
const ACCOUNTED: Duration = Duration::from_millis(200);

/// What a client is spoken with over.
pub(super) trait PeerStream: Read + Write {
    /// From then on reading fails with [`io::ErrorKind::TimedOut`], in however small pieces the client sends.
    fn be_patient_until(&mut self, then: Instant);

    /// Whether the client has closed its side. Asked while nothing is expected of it: nobody else would notice on a quiet stream.
    fn is_gone(&mut self) -> bool;
}

/// What the conversations of one door have in common.
pub(super) struct RequestServer {
    pub(super) daemon: Arc<Daemon>,
    /// The node stops.
    pub(super) is_over: Arc<AtomicBool>,
    /// Clients that there are,
    pub(super) clients: Arc<AtomicUsize>,
    /// bytes of files that they send,
    bodies: UploadQuota,
    /// and how often they ask.
    pace: RequestRateLimiter,
}

impl RequestServer {
    pub(super) fn new(daemon: &Arc<Daemon>, is_over: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            daemon: Arc::clone(daemon),
            is_over: Arc::clone(is_over),
            clients: Arc::default(),
            bodies: UploadQuota::default(),
            pace: RequestRateLimiter::new(Instant::now()),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

pub(super) fn say(line: &mut impl Write, reply: Reply) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(&Response { weir: VERSION, reply })?;
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
    office: &'a RequestServer,
    meter: RequestMeter,
}

/// The processor time of this thread that belongs to requests.
#[derive(Clone, Copy, Debug, Default)]
struct RequestMeter {
    /// The thread's time up to which it is accounted. The thread began with the connection, so the first request has that, too.
    accounted: Nanos,
    /// Time since then that is on the bill of a session already.
    billed: Nanos,
    /// The cost that the request was charged with before it was read.
    charged: Nanos,
    /// The request was refused, or failed.
    is_refused: bool,
}

impl<'a, L: PeerStream> Conversation<'a, L> {
    pub(super) fn new(line: L, asker: Asker, office: &'a RequestServer) -> Self {
        let chain = asker.chain();
        Self { line: BufReader::new(line), chain, asker, office, meter: RequestMeter::default() }
    }

    /// Charges the asker, who is the holder of a credential, for what this thread did since the last time: for a request, a connection, or a part of one.
    fn account(&mut self, count: u64) {
        let Asker::Holder(credential) = &self.asker else { return };
        let RequestMeter { accounted, billed, charged, is_refused } = self.meter;
        let now = thread_time();
        self.meter = RequestMeter { accounted: now, ..RequestMeter::default() };
        let cpu = Nanos(now.0.saturating_sub(accounted.0).saturating_sub(billed.0));
        let more = Nanos(cost_of_time(cpu).0.saturating_sub(charged.0));
        self.office.pace.charge(&self.chain, more);
        self.office.daemon.asked(credential, RequestPermit { count, refused: is_refused.into(), cpu });
    }

    /// Waits for the asker's turn for something of this cost; not at all where it costs nothing.
    fn take_turn(&mut self, cost: Nanos) -> Result<(), String> {
        if cost == Nanos(0) {
            return Ok(());
        }
        if let Err(too_often) = self.office.pace.take(&self.chain, cost) {
            // When to ask again is different each time, and it is one kind.
            self.office
                .daemon
                .decided(PendingDecision::unread(&self.asker).refused("more was asked than is answered"));
            return Err(too_often.to_string());
        }
        self.meter.charged.0 = self.meter.charged.0.saturating_add(cost.0);
        Ok(())
    }

    fn be_patient(&mut self) {
        self.line.get_mut().be_patient_until(Instant::now() + PATIENCE);
    }

    fn say(&mut self, reply: Reply) -> io::Result<()> {
        say(self.line.get_mut(), reply)
    }

    fn refuse(&mut self, why: &dyn Display) -> io::Result<()> {
        self.meter.is_refused = true;
        refuse(self.line.get_mut(), why)
    }

    /// Answers until the client goes, says something that is no request, or the node stops.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        // The handshake, and looking at the credential.
        self.account(1);
        while !self.office.is_over() {
            self.be_patient();
            if self.line.fill_buf()?.is_empty() {
                return Ok(());
            }
            // The whole request, from its first byte on.
            self.be_patient();
            let go_on = self.request();
            self.account(1);
            if !go_on? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Answers one request. Says whether there can be another.
    fn request(&mut self) -> io::Result<bool> {
        let line = listen(&mut self.line)?;
        // Before anything of it is looked at. It is not read, so what follows it cannot be told from it.
        if let Err(why) = self.take_turn(cost_of(line.len())) {
            return self.refuse(&why).map(|()| false);
        }
        let (ask, len) = match understand(&line) {
            Heard::Ask(ask, len) => (ask, len),
            Heard::End => return Ok(false),
            Heard::Wrong(why) => return self.refuse(&why).map(|()| false),
        };
        drop(line);
        let sent = match self.admitted(&ask, len) {
            Ok(sent) => sent,
            // Where nothing follows it there can be another request.
            Err(why) => return self.refuse(&why).map(|()| len == 0),
        };
        if let Err(why) = self.take_turn(more_for(len)) {
            return self.refuse(&why).map(|()| false);
        }
        // Until it is answered.
        let (of, bytes) = (self.chain.first().copied(), sent.as_ref().map_or(len, |file| file.len()));
        let office = self.office;
        let Some(_room) = office.bodies.take(of, bytes) else {
            let why = "so much is being sent to the node, by others or under your credential, that there is no room for this file; try again";
            return self.refuse(&why).map(|()| false);
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
        self.answer(ask.ask, body)
    }

    /// Decides on a request before its file has come: a file that is too long or of no use is refused. Returns the file if it has come before.
    fn admitted(&self, ask: &Ask, len: usize) -> Result<Option<Arc<Vec<u8>>>, String> {
        if let Some(why) = self.not_for_him(&ask.ask, len) {
            self.office.daemon.decided(PendingDecision::of(&self.asker, &ask.ask, None).refused(&why));
            return Err(why);
        }
        self.sent_before(ask)
    }

    /// Why the file of so many bytes that comes with a holder's request is not even taken.
    fn not_for_him(&self, ask: &ControlRequest, len: usize) -> Option<String> {
        if len == 0 || matches!(self.asker, Asker::Operator(_)) {
            return None;
        }
        match ask {
            ControlRequest::Load { .. } if len > PART_BYTES_MAX => {
                let most = Bytes(PART_BYTES_MAX as u64);
                Some(format!(
                    "a file of more than {most} is sent in parts, before the request that it belongs to"
                ))
            }
            ControlRequest::PutTable { .. } => {
                let permitted = self.office.daemon.permit(&self.asker, ask.clone(), None);
                permitted.err().map(|refusal| refusal.to_string())
            }
            _ => None,
        }
    }

    /// The file of a request that has come before, if it is one with such a file.
    fn sent_before(&self, ask: &Ask) -> Result<Option<Arc<Vec<u8>>>, String> {
        let Some(file) = &ask.file else { return Ok(None) };
        if ask.body > 0 || !matches!(ask.ask, ControlRequest::Load { .. }) {
            return Err(
                "only a module to be loaded can be a file that was sent before, and it has no body then"
                    .to_owned(),
            );
        }
        let sent = self.office.daemon.uploads.file(&self.chain, file, Instant::now());
        let sent = sent.map_err(|error| error.to_string())?;
        // Its hash is known, so it is refused before it is copied and hashed again.
        if let Err(why) = self.office.daemon.permit_known(&self.asker, &ask.ask, file) {
            let daemon = &self.office.daemon;
            let session = daemon.session_of(&self.asker, &ask.ask);
            daemon.decided(
                PendingDecision::of(&self.asker, &ask.ask, session.as_ref()).refused(&why.to_string()),
            );
            return Err(why.to_string());
        }
        Ok(Some(sent))
    }

    /// Answers a request. Says whether there can be another.
    fn answer(&mut self, ask: ControlRequest, body: Option<Vec<u8>>) -> io::Result<bool> {
        let daemon = &self.office.daemon;
        let names = Names { node: daemon.session_of(&self.asker, &ask), asker: ask.session().cloned() };
        let asked = PendingDecision::of(&self.asker, &ask, names.node.as_ref());
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
            ControlRequest::Show
                | ControlRequest::Upload(_)
                | ControlRequest::Explain(_)
                | ControlRequest::Ledger(_)
                | ControlRequest::Revocations
        );
        let (owner, by) = (permitted.owner, permitted.by);
        let mut budget = turns::budget_for(owner.as_ref());
        let answer = match permitted.ask {
            ControlRequest::Show => Reply::Snapshot(Box::new(daemon.snapshot_for(&self.asker))),
            ControlRequest::Watch { every } => {
                daemon.decided(asked.answered(&done(), false));
                let every = Duration::from_nanos(every.0).clamp(WATCH_MIN, PATIENCE);
                while !self.has_ended()? {
                    let snapshot = self.office.daemon.snapshot_for(&self.asker);
                    self.say(Reply::Snapshot(Box::new(snapshot)))?;
                    self.account(0);
                    std::thread::sleep(every);
                    if let Err(why) = self.take_turn(cost_of(0)) {
                        return self.refuse(&why).map(|()| false);
                    }
                }
                return Ok(false);
            }
            ControlRequest::Create(spec) => reply(daemon.create(spec, owner, &mut budget)),
            ControlRequest::Change(change) => reply(daemon.change(&change, (owner, by), &mut budget)),
            ControlRequest::Close { session } => reply(daemon.close(&session, &(owner, by))),
            ControlRequest::Load { session, module, signatures } => noted(
                daemon
                    .load(&session, (owner, by), &module, body, &signatures, &mut budget)
                    .map(|name| format!("module {name} runs in session {session}")),
            ),
            ControlRequest::Upload(part) => {
                let bytes = body.unwrap_or_default();
                match daemon.uploads.take(&self.chain, &part, &bytes, Instant::now()) {
                    Ok(bytes) => Reply::Uploaded { bytes },
                    Err(error) => refused(&error),
                }
            }
            ControlRequest::Unload { session, module } => {
                reply(daemon.unload(&session, &module, &(owner, by)))
            }
            ControlRequest::PutTable { table } => reply(daemon.put_table(&table, &body.unwrap_or_default())),
            ControlRequest::RemoveTable { table } => reply(daemon.remove_table(&table)),
            ControlRequest::Rate(rate) => noted(daemon.change_rate(&rate)),
            ControlRequest::Explain(what) => match daemon.explain(&self.asker, *what, body.as_deref()) {
                Ok(explained) => Reply::Explained(Box::new(explained)),
                Err(error) => {
                    is_refusal.set(true);
                    refused(&error)
                }
            },
            ControlRequest::Ledger(ask) => match daemon.tell(&self.asker, &ask) {
                Ok(telling) => {
                    daemon.decided(asked.answered(&done(), false));
                    return self.tell(telling);
                }
                Err(error) => refused(&error),
            },
            ControlRequest::Revoke => {
                let shown = super::delivery::shown_by(&self.asker);
                super::delivery::take(daemon, shown, &body.unwrap_or_default())
            }
            ControlRequest::Revocations => Reply::Revocations(daemon.revocations_for(&self.asker)),
            ControlRequest::Reload => match daemon.reload() {
                Ok(notes) => Reply::Done { notes },
                Err(error) => refused(&error),
            },
            ControlRequest::Follow { session, module, stream } => {
                let right = (owner, by);
                let following = daemon.with_node(|node| {
                    node.still_permitted(&session, &right)?;
                    node.follow(&session, &module, &stream)
                });
                let by = right.1;
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
        self.meter.billed.0 = self.meter.billed.0.saturating_add(budget.here().0);
        self.meter.is_refused = matches!(answer, Reply::Refused { .. });
        daemon.decided(asked.answered(&answer, is_refusal.get()));
        self.say(names.as_asked(answer)).map(|()| true)
    }

    /// What the ledger says, in pieces. Says whether there can be another request.
    fn tell(&mut self, mut telling: LedgerQuery<'_>) -> io::Result<bool> {
        loop {
            if self.has_ended()? {
                return Ok(false);
            }
            let told = telling.next();
            // Turns are paid for.
            self.meter.billed.0 = self.meter.billed.0.saturating_add(telling.take_used().0);
            let reply = match told {
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

    /// The same for a follower of a session, who may have lost the right over it.
    fn has_ended_over(&mut self, session: &Name, by: Option<&ShareGrant>) -> io::Result<bool> {
        if self.has_ended()? {
            return Ok(true);
        }
        match self.office.daemon.still_over(&self.asker, session, by) {
            // What ended with its session is said in other words.
            Ok(()) | Err(RequestRefusal::NoSession(_)) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }

    /// Until nothing more comes, or is for him.
    fn follow(&mut self, following: &Following, session: &Name, by: Option<&ShareGrant>) -> io::Result<()> {
        let (mut looked, mut accounted) = (Instant::now(), Instant::now());
        while !self.office.is_over() && self.office.daemon.still(&self.asker).is_ok() {
            // The node is held for that, so it is not done for each row.
            if by.is_some() && looked.elapsed() >= SHARE_LOOK {
                looked = Instant::now();
                if self.office.daemon.still_over(&self.asker, session, by).is_err() {
                    return Ok(());
                }
            }
            if accounted.elapsed() >= ACCOUNTED {
                self.account(0);
                accounted = Instant::now();
            }
            match following.next(Duration::from_millis(200)) {
                Ok(FollowedRecord { reply, load }) => {
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
