//! Serves the requests of one client, over any transport.

use super::quota::{PeerQuota, UploadQuota};
use super::rate_limiter::{RequestRateLimiter, cost_of_cpu, cost_of_extra_bytes, cost_of_request};
use super::records::{FETCHES_MAX, RecordPacer};
use crate::control::audit::PendingDecision;
use crate::control::authority::{RequestRefusal, Requester};
use crate::control::module_file::module_hash;
use crate::control::protocol::request_reader::{ParsedRequest, parse_request, read_line};
use crate::control::protocol::{
    ControlRequest, FollowedRow, PART_BYTES_MAX, Reply, RequestLine, Response, VERSION,
};
use crate::control::share::ShareGrant;
use crate::server::compile_queue;
use crate::server::daemon::{Daemon, LedgerQuery};
use crate::server::request_usage::RequestUsage;
use crate::sessions::error::NodeError;
use crate::sessions::followers::{FollowedItem, FollowedRecord, Following};
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_sandbox::thread_time;
use weir_trust::credential::DelegationId;
use weir_units::{Bytes, Nanos, hex};

/// The time after which the connection of a client that sends nothing, or reads nothing, is closed.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The shortest time between two snapshots for one client.
const WATCH_MIN: Duration = Duration::from_millis(50);
/// The interval between two checks that a session is still shared with its follower. After the owner has removed the
/// share, the follower may receive records for this interval, and one more record.
const SHARE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which a follower is charged for the processor time of sending records.
const FOLLOW_CHARGE_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the reason why a session has nothing to follow.
fn no_stream(session: &Name, module: Option<&Name>, streams: &[Name]) -> String {
    let names: Vec<String> = streams.iter().map(|stream| format!("`{stream}`")).collect();
    let named =
        if names.is_empty() { "record stream".to_owned() } else { format!("stream {}", names.join(" or ")) };
    match module {
        Some(module) => format!("module `{module}` has no {named}; `weir session show {session}` lists them"),
        None => format!("no module in the session has a {named}; `weir session show {session}` lists them"),
    }
}

/// The byte stream of a client's connection.
pub(super) trait PeerStream: Read + Write {
    /// Sets the time at which reads fail with [`io::ErrorKind::TimedOut`], even if bytes still arrive one by one.
    fn set_read_deadline(&mut self, deadline: Instant);

    /// Returns true if the client has closed its side. Called only while no request is expected.
    fn is_closed_by_peer(&mut self) -> bool;
}

/// The state that all connections of one listener share.
pub(super) struct RequestServer {
    pub(super) daemon: Arc<Daemon>,
    /// Set when the node stops.
    pub(super) is_stopping: Arc<AtomicBool>,
    /// The number of connected clients.
    pub(super) client_count: Arc<AtomicUsize>,
    /// Memory for request bodies.
    upload_quota: UploadQuota,
    rate_limiter: RequestRateLimiter,
    /// Slots for fetches of record files, by holder.
    pub(super) record_fetches: PeerQuota<Option<DelegationId>>,
    pub(super) record_pacer: RecordPacer,
}

impl RequestServer {
    pub(super) fn new(daemon: &Arc<Daemon>, is_stopping: &Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            daemon: Arc::clone(daemon),
            is_stopping: Arc::clone(is_stopping),
            client_count: Arc::default(),
            upload_quota: UploadQuota::default(),
            rate_limiter: RequestRateLimiter::new(Instant::now()),
            record_fetches: PeerQuota::new(usize::MAX, FETCHES_MAX),
            record_pacer: RecordPacer::new(Instant::now()),
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

pub(super) fn send_reply(stream: &mut impl Write, reply: Reply) -> io::Result<()> {
    send_reply_with_body(stream, reply, &[])
}

/// Sends a reply whose line is followed by these bytes.
fn send_reply_with_body(stream: &mut impl Write, reply: Reply, body: &[u8]) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(&Response { weir: VERSION, reply })?;
    bytes.push(b'\n');
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Sends a refusal. Also used for peers that are rejected before their first request.
pub(super) fn send_refusal(stream: &mut impl Write, why: &dyn Display) -> io::Result<()> {
    send_reply(stream, Reply::Refused { why: why.to_string() })
}

/// The two names of the session that a request names.
struct SessionNames {
    /// The session's name within the node.
    node: Option<Name>,
    /// The name in the request.
    requested: Option<Name>,
}

impl SessionNames {
    /// Replaces the session's name within the node by the name in the request, in the texts of a reply.
    fn replace_in(&self, reply: Reply) -> Reply {
        let (Some(node), Some(requested)) = (&self.node, &self.requested) else { return reply };
        if node == requested {
            return reply;
        }
        // The node's name for a holder's session contains a hash, so no other word of the text can equal it.
        let renamed = |text: String| text.replace(node.as_str(), requested.as_str());
        match reply {
            Reply::Done { notes } => Reply::Done { notes: notes.into_iter().map(renamed).collect() },
            Reply::Refused { why } => Reply::Refused { why: renamed(why) },
            other => other,
        }
    }
}

/// The connection of one authenticated client.
pub(super) struct Connection<'a, L> {
    stream: BufReader<L>,
    requester: Requester,
    /// The client's delegation chain: see [`Requester::chain`].
    chain: Vec<DelegationId>,
    server: &'a RequestServer,
    uncharged: UnchargedTime,
}

/// The processor time of a connection's thread that is still to be charged for requests.
#[derive(Clone, Copy, Debug, Default)]
struct UnchargedTime {
    /// The CPU time of the thread up to which all work is charged. It starts at 0, so the first charge includes the
    /// handshake.
    charged_until: Nanos,
    /// CPU time after `charged_until` that a session was charged for already.
    charged_to_session: Nanos,
    /// Part of the present request's cost that the rate limiter has charged already.
    prepaid: Nanos,
    /// True if the request was refused or failed.
    is_refused: bool,
}

impl<'a, L: PeerStream> Connection<'a, L> {
    pub(super) fn new(stream: L, requester: Requester, server: &'a RequestServer) -> Self {
        let chain = requester.chain();
        Self { stream: BufReader::new(stream), chain, requester, server, uncharged: UnchargedTime::default() }
    }

    /// Charges the holder for the processor time of this thread since the last charge. `count` is the number of
    /// requests to count: 0 for a further part of a request. Operators are not charged.
    pub(super) fn charge(&mut self, count: u64) {
        let Requester::Holder(credential) = &self.requester else { return };
        let UnchargedTime { charged_until, charged_to_session, prepaid, is_refused } = self.uncharged;
        let now = thread_time();
        self.uncharged = UnchargedTime { charged_until: now, ..UnchargedTime::default() };
        let cpu = Nanos(now.0.saturating_sub(charged_until.0).saturating_sub(charged_to_session.0));
        let further_cost = Nanos(cost_of_cpu(cpu).0.saturating_sub(prepaid.0));
        self.server.rate_limiter.charge(&self.chain, further_cost);
        let usage = RequestUsage { count, refused: is_refused.into(), cpu };
        self.server.daemon.charge_request(credential, usage);
    }

    /// Waits until the rate limiter admits a request of this cost. Returns at once if the cost is 0.
    pub(super) fn wait_for_rate(&mut self, cost: Nanos) -> Result<(), String> {
        if cost == Nanos(0) {
            return Ok(());
        }
        if let Err(too_often) = self.server.rate_limiter.acquire(&self.chain, cost) {
            // The ledger's reason has no waiting time, so that equal refusals are counted in one entry.
            self.server.daemon.record_decision(
                PendingDecision::unread(&self.requester).refused("the rate of requests is limited"),
            );
            return Err(too_often.to_string());
        }
        self.uncharged.prepaid.0 = self.uncharged.prepaid.0.saturating_add(cost.0);
        Ok(())
    }

    fn extend_read_deadline(&mut self) {
        self.stream.get_mut().set_read_deadline(Instant::now() + CLIENT_TIMEOUT);
    }

    pub(super) fn send_reply(&mut self, reply: Reply) -> io::Result<()> {
        send_reply(self.stream.get_mut(), reply)
    }

    /// Sends a reply whose line is followed by these bytes.
    pub(super) fn send_reply_with_body(&mut self, reply: Reply, body: &[u8]) -> io::Result<()> {
        send_reply_with_body(self.stream.get_mut(), reply, body)
    }

    pub(super) fn server(&self) -> &'a RequestServer {
        self.server
    }

    pub(super) fn requester(&self) -> &Requester {
        &self.requester
    }

    /// Returns the client's credential: the last delegation of its chain. `None` for an operator.
    pub(super) fn holder(&self) -> Option<DelegationId> {
        self.chain.last().copied()
    }

    pub(super) fn refuse(&mut self, why: &dyn Display) -> io::Result<()> {
        self.uncharged.is_refused = true;
        send_refusal(self.stream.get_mut(), why)
    }

    /// Serves requests until the client closes the connection or sends an invalid request, or the node stops.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        // Charges the handshake and the verification of the credential.
        self.charge(1);
        while !self.server.is_stopping() {
            self.extend_read_deadline();
            if self.stream.fill_buf()?.is_empty() {
                return Ok(());
            }
            // From its first byte on, the whole request has to arrive within the timeout.
            self.extend_read_deadline();
            let stays_open = self.serve_request();
            self.charge(1);
            if !stays_open? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads and answers one request. Returns false if the connection has to be closed.
    fn serve_request(&mut self) -> io::Result<bool> {
        let line = read_line(&mut self.stream)?;
        // The cost of the line is charged before the line is parsed. After a refusal the connection has to be closed,
        // since the length of the body is unknown.
        if let Err(why) = self.wait_for_rate(cost_of_request(line.len())) {
            return self.refuse(&why).map(|()| false);
        }
        let (message, len) = match parse_request(&line) {
            ParsedRequest::Request(message, len) => (message, len),
            ParsedRequest::End => return Ok(false),
            ParsedRequest::Invalid(why) => return self.refuse(&why).map(|()| false),
        };
        drop(line);
        let uploaded = match self.check_before_body(&message, len) {
            Ok(uploaded) => uploaded,
            // A request without a body is followed by the next request, so the connection can stay open.
            Err(why) => return self.refuse(&why).map(|()| len == 0),
        };
        if let Err(why) = self.wait_for_rate(cost_of_extra_bytes(len)) {
            return self.refuse(&why).map(|()| false);
        }
        let (party, bytes) = (self.chain.first().copied(), uploaded.as_ref().map_or(len, |file| file.len()));
        let server = self.server;
        // Held until the request is answered.
        let Some(_permit) = server.upload_quota.acquire(party, bytes) else {
            let why = "the node's memory for files in transfer is used up, by other clients or under your own grant, so there is no room for this file: try again";
            return self.refuse(&why).map(|()| false);
        };
        let body = match uploaded {
            Some(file) => Some(file.to_vec()),
            None if len == 0 => None,
            None => {
                let mut body = vec![0; len];
                self.stream.read_exact(&mut body)?;
                Some(body)
            }
        };
        self.execute(message.request, body)
    }

    /// Checks a request before its body is read. Returns the file that the request refers to, if it was uploaded before.
    fn check_before_body(&self, message: &RequestLine, len: usize) -> Result<Option<Arc<Vec<u8>>>, String> {
        if let Some(why) = self.body_refusal(&message.request, len) {
            self.server.daemon.record_decision(
                PendingDecision::for_request(&self.requester, &message.request, None).refused(&why),
            );
            return Err(why);
        }
        self.uploaded_file(message)
    }

    /// Returns the reason why a holder's request with a body of `len` bytes is refused before the body is read.
    fn body_refusal(&self, request: &ControlRequest, len: usize) -> Option<String> {
        if len == 0 || matches!(self.requester, Requester::Operator(_)) {
            return None;
        }
        match request {
            ControlRequest::Load { .. } if len > PART_BYTES_MAX => {
                let part_max = Bytes(PART_BYTES_MAX as u64);
                Some(format!(
                    "a file of more than {part_max} is sent in parts, before the request that uses it"
                ))
            }
            ControlRequest::PutTable { .. } => {
                let permitted = self.server.daemon.permit(&self.requester, request.clone(), None);
                permitted.err().map(|refusal| refusal.to_string())
            }
            _ => None,
        }
    }

    /// Returns the uploaded file that a request names by its hash, or `None` if the request names no file.
    fn uploaded_file(&self, message: &RequestLine) -> Result<Option<Arc<Vec<u8>>>, String> {
        let Some(file) = &message.file else { return Ok(None) };
        if message.body > 0 || !matches!(message.request, ControlRequest::Load { .. }) {
            return Err("only a request to load a module can name an uploaded file, and it then has no body"
                .to_owned());
        }
        let uploaded = self.server.daemon.uploads.complete_file(&self.chain, file, Instant::now());
        let uploaded = uploaded.map_err(|error| error.to_string())?;
        // The hash of a module's file is known, so a request can be refused before the file is copied and hashed again. A grant
        // and signatures are for the module in a bundle, not for the bundle.
        let module = module_hash(&uploaded, *file);
        if let Err(why) = self.server.daemon.permit_known(&self.requester, &message.request, &module) {
            let daemon = &self.server.daemon;
            let session = daemon.session_of(&self.requester, &message.request);
            daemon.record_decision(
                PendingDecision::for_request(&self.requester, &message.request, session.as_ref())
                    .refused(&why.to_string()),
            );
            return Err(why.to_string());
        }
        Ok(Some(uploaded))
    }

    /// Authorises, executes and answers a request. Returns false if the connection has to be closed.
    fn execute(&mut self, request: ControlRequest, body: Option<Vec<u8>>) -> io::Result<bool> {
        let daemon = &self.server.daemon;
        let names = SessionNames {
            node: daemon.session_of(&self.requester, &request),
            requested: request.session().cloned(),
        };
        let decision = PendingDecision::for_request(&self.requester, &request, names.node.as_ref());
        let permitted = match daemon.permit(&self.requester, request, body.as_deref()) {
            Ok(permitted) => permitted,
            Err(why) => {
                daemon.record_decision(decision.refused(&why.to_string()));
                return self.refuse(&why).map(|()| true);
            }
        };
        // True if the request failed because of the client's rights; false if it failed for another reason.
        let lacks_right = Cell::new(false);
        let done_reply = || Reply::Done { notes: Vec::new() };
        let refused = |why: &dyn Display| Reply::Refused { why: why.to_string() };
        let is_operator = matches!(self.requester, Requester::Operator(_));
        let failed = |error: &NodeError| {
            lacks_right.set(matches!(error, NodeError::NotPermitted(_)));
            if is_operator { refused(error) } else { refused(&error.for_holder()) }
        };
        let reply = |result: Result<(), NodeError>| match result {
            Ok(()) => done_reply(),
            Err(error) => failed(&error),
        };
        let reply_with_note = |result: Result<String, NodeError>| match result {
            Ok(note) => Reply::Done { notes: vec![note] },
            Err(error) => failed(&error),
        };
        let is_read_only = matches!(
            permitted.request,
            ControlRequest::Show
                | ControlRequest::Upload(_)
                | ControlRequest::Explain(_)
                | ControlRequest::Ledger(_)
                | ControlRequest::Records(_)
                | ControlRequest::FetchRecords(_)
                | ControlRequest::Revocations
                | ControlRequest::Credentials
        );
        let (owner, share) = (permitted.owner, permitted.share);
        let mut budget = compile_queue::budget_for(owner.as_ref());
        let answer = match permitted.request {
            ControlRequest::Show => Reply::Snapshot(Box::new(daemon.snapshot_for(&self.requester))),
            ControlRequest::Watch { every } => {
                daemon.record_decision(decision.answered(&done_reply(), false));
                let every = Duration::from_nanos(every.0).clamp(WATCH_MIN, CLIENT_TIMEOUT);
                while !self.refuse_if_ended()? {
                    let snapshot = self.server.daemon.snapshot_for(&self.requester);
                    self.send_reply(Reply::Snapshot(Box::new(snapshot)))?;
                    self.charge(0);
                    std::thread::sleep(every);
                    if let Err(why) = self.wait_for_rate(cost_of_request(0)) {
                        return self.refuse(&why).map(|()| false);
                    }
                }
                return Ok(false);
            }
            ControlRequest::Create(spec) => reply(daemon.create(spec, owner, &mut budget)),
            ControlRequest::Change(change) => reply(daemon.change(&change, (owner, share), &mut budget)),
            ControlRequest::Close { session } => reply(daemon.close(&session, &(owner, share))),
            ControlRequest::Load { session, module, signatures, replace: Some(trial) } => {
                let file = (body, signatures.as_slice());
                reply_with_note(daemon.replace(&session, (owner, share), &module, file, trial, &mut budget))
            }
            ControlRequest::Load { session, module, signatures, replace: None } => reply_with_note(
                daemon
                    .load(&session, (owner, share), &module, body, &signatures, &mut budget)
                    .map(|name| format!("module {name} runs in session {session}")),
            ),
            ControlRequest::Upload(part) => {
                let bytes = body.unwrap_or_default();
                match daemon.uploads.add_part(&self.chain, &part, &bytes, Instant::now()) {
                    Ok(bytes) => Reply::Uploaded { bytes },
                    Err(error) => refused(&error),
                }
            }
            ControlRequest::Unload { session, module } => {
                reply(daemon.unload(&session, &module, &(owner, share)))
            }
            ControlRequest::PutTable { table } => reply(daemon.put_table(&table, &body.unwrap_or_default())),
            ControlRequest::RemoveTable { table } => reply(daemon.remove_table(&table)),
            ControlRequest::Rate(rate) => reply_with_note(daemon.change_rate(&rate)),
            ControlRequest::Explain(explain) => {
                match daemon.explain(&self.requester, *explain, body.as_deref()) {
                    Ok(explained) => Reply::Explained(Box::new(explained)),
                    Err(error) => {
                        lacks_right.set(true);
                        refused(&error)
                    }
                }
            }
            ControlRequest::Ledger(request) => match daemon.query_ledger(&self.requester, &request) {
                Ok(query) => {
                    daemon.record_decision(decision.answered(&done_reply(), false));
                    return self.send_entries(query);
                }
                Err(error) => refused(&error),
            },
            ControlRequest::Records(request) => match daemon.readable_records(&self.requester, &request) {
                Ok(sessions) => {
                    daemon.record_decision(decision.answered(&done_reply(), false));
                    return self.send_record_files(sessions, &request);
                }
                Err(error) => {
                    lacks_right.set(true);
                    refused(&error)
                }
            },
            ControlRequest::FetchRecords(request) => {
                match daemon.record_access(&self.requester, &request.session) {
                    Ok(access) => {
                        daemon.record_decision(decision.answered(&done_reply(), false));
                        return self.send_record_file(&access, &request);
                    }
                    Err(error) => {
                        lacks_right.set(true);
                        refused(&error)
                    }
                }
            }
            ControlRequest::Revoke => {
                let credential = super::delivery::credential_of(&self.requester);
                super::delivery::receive_list(daemon, credential, &body.unwrap_or_default())
            }
            ControlRequest::Revocations => Reply::Revocations(daemon.revocations_for(&self.requester)),
            ControlRequest::Credentials => match daemon.credentials(&self.requester) {
                Ok(tree) => Reply::Credentials(tree),
                Err(error) => {
                    lacks_right.set(true);
                    refused(&error)
                }
            },
            ControlRequest::Reload => match daemon.reload() {
                Ok(notes) => Reply::Done { notes },
                Err(error) => refused(&error),
            },
            ControlRequest::Follow { session, module, streams } => {
                let permitted_by = (owner, share);
                let following = daemon.with_node(|node| {
                    node.permitted_session(&session, &permitted_by)?;
                    let following = node.follow(&session, module.as_ref(), &streams)?;
                    Ok::<_, NodeError>(
                        following.map(|following| (node.config.node.name.to_string(), following)),
                    )
                });
                let share = permitted_by.1;
                match following {
                    Ok(Some((node, mut following))) => {
                        daemon.record_decision(decision.answered(&done_reply(), false));
                        // The manifests are not kept while the client follows.
                        let modules = std::mem::take(&mut following.modules);
                        self.send_reply(Reply::Followed { node, modules })?;
                        self.send_records(&following, &session, share.as_ref())?;
                        if !self.refuse_if_share_ended(&session, share.as_ref())? {
                            let note =
                                "the records end here: their modules were unloaded, or the session closed";
                            self.send_reply(Reply::Done { notes: vec![note.to_owned()] })?;
                        }
                        return Ok(false);
                    }
                    Ok(None) => refused(&no_stream(&session, module.as_ref(), &streams)),
                    Err(error) => refused(&error),
                }
            }
        };
        if !is_read_only {
            daemon.invalidate_snapshots();
        }
        self.uncharged.charged_to_session.0 =
            self.uncharged.charged_to_session.0.saturating_add(budget.used_in_caller().0);
        self.uncharged.is_refused = matches!(answer, Reply::Refused { .. });
        daemon.record_decision(decision.answered(&answer, lacks_right.get()));
        self.send_reply(names.replace_in(answer)).map(|()| true)
    }

    /// Sends the entries of a ledger query in several replies. Returns false if the connection has to be closed.
    fn send_entries(&mut self, mut query: LedgerQuery<'_>) -> io::Result<bool> {
        loop {
            if self.refuse_if_ended()? {
                return Ok(false);
            }
            let reply = query.next();
            // The compile queue has charged the time of the query already.
            let charged = query.take_used();
            self.uncharged.charged_to_session.0 =
                self.uncharged.charged_to_session.0.saturating_add(charged.0);
            match reply {
                Ok(Some(entries)) => self.send_reply(entries)?,
                Ok(None) => return self.send_reply(Reply::Done { notes: query.notes() }).map(|()| true),
                Err(why) => return self.refuse(&why).map(|()| true),
            }
        }
    }

    /// Returns true, after a refusal was sent, if the node stops or the client's right has ended.
    pub(super) fn refuse_if_ended(&mut self) -> io::Result<bool> {
        if self.server.is_stopping() {
            return self.refuse(&"the node stops").map(|()| true);
        }
        match self.server.daemon.check_right(&self.requester) {
            Ok(()) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }

    /// Returns true, after a refusal was sent, if the node stops, the client's right has ended, or the session is not
    /// shared with the client any more.
    fn refuse_if_share_ended(&mut self, session: &Name, share: Option<&ShareGrant>) -> io::Result<bool> {
        if self.refuse_if_ended()? {
            return Ok(true);
        }
        match self.server.daemon.check_share(&self.requester, session, share) {
            // The caller reports a closed session.
            Ok(()) | Err(RequestRefusal::NoSession(_)) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }

    /// Sends records to a follower until the module is unloaded, the follower's right ends, or the connection closes.
    fn send_records(
        &mut self,
        following: &Following,
        session: &Name,
        share: Option<&ShareGrant>,
    ) -> io::Result<()> {
        let (mut last_share_check, mut last_charge) = (Instant::now(), Instant::now());
        while !self.server.is_stopping() && self.server.daemon.check_right(&self.requester).is_ok() {
            // The check of the share locks the node, so it is not made for each record.
            if share.is_some() && last_share_check.elapsed() >= SHARE_CHECK_INTERVAL {
                last_share_check = Instant::now();
                if self.server.daemon.check_share(&self.requester, session, share).is_err() {
                    break;
                }
            }
            if last_charge.elapsed() >= FOLLOW_CHARGE_INTERVAL {
                self.charge(0);
                last_charge = Instant::now();
            }
            match following.next(Duration::from_millis(200)) {
                Ok(FollowedRecord { stream, item, in_flight }) => {
                    self.send_reply(match item {
                        FollowedItem::Row { row, tail } => {
                            Reply::Record(FollowedRow { stream, row: hex(&row), tail: hex(&tail) })
                        }
                        FollowedItem::Missed(rows) => Reply::Missed { stream, rows },
                    })?;
                    drop(in_flight);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.stream.get_mut().is_closed_by_peer() {
                        return Ok(());
                    }
                    // No further row of a stream may come, before which the number would be sent.
                    self.send_missed(following)?;
                }
                // All modules were unloaded, or their session closed.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.send_missed(following)
    }

    /// Sends the numbers of missed rows that no message has reported yet.
    fn send_missed(&mut self, following: &Following) -> io::Result<()> {
        following.take_missed().try_for_each(|(stream, rows)| self.send_reply(Reply::Missed { stream, rows }))
    }
}
