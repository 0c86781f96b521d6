//! Sends lists of stored record files, and the files themselves.
//!
//! A file is sent in parts, from the thread of the client's connection. The node reads a part only after the previous
//! one is written to the connection, so a slow client takes the memory of one part. Before each part
//!
//! - the client's right is checked again;
//! - the request limiter admits the part's bytes, so all fetches under one credential are as fast as one;
//! - the part waits for the rate of its session, `record_bytes`.

use super::connection::{Connection, PeerStream};
use super::rate_limiter::{cost_of_extra_bytes, cost_of_request};
use crate::control::protocol::{
    PART_BYTES_MAX, RECORD_FILES_MAX, RecordFile, RecordFileRequest, RecordsRequest, Reply,
};
use crate::log;
use crate::server::daemon::{RecordAccess, SessionRecords};
use crate::sessions::writer::OpenRecordFile;
use crate::sync::LeafMutex;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_ledger::Digest;
use weir_units::{Bytes, Nanos};

/// Fetches of one holder at the same time. Operators count as one holder.
pub(super) const FETCHES_MAX: usize = 2;
/// The shortest part of a file, except for the last one.
const PART_BYTES_MIN: u64 = 4096;
/// The interval at which a client gets an empty part while it waits. It is shorter than the client's timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which a waiting fetch checks the client's right.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes before the requested offset that are read before their processor time is charged.
const UNSENT_BYTES_MAX: u64 = 1 << 20;
/// Sent bytes that are reported to the session at once.
const REPORTED_BYTES: u64 = 1 << 20;

/// The times at which sessions may send the next part of their record files, so that each session keeps to its rate
/// whatever the number of clients.
#[derive(Debug)]
pub(super) struct RecordPacer {
    started: Instant,
    /// Only sessions that wait have an entry.
    next: LeafMutex<BTreeMap<Name, Nanos>>,
}

impl RecordPacer {
    pub(super) fn new(started: Instant) -> Self {
        Self { started, next: LeafMutex::default() }
    }

    /// Reserves time for a part of a session's files, and returns the time to wait before the part is sent.
    fn reserve(&self, session: &Name, bytes: u64, rate: u64) -> Duration {
        self.reserve_at(session, bytes, rate, Nanos::from(self.started.elapsed()))
    }

    fn reserve_at(&self, session: &Name, bytes: u64, rate: u64, now: Nanos) -> Duration {
        let takes = u128::from(bytes) * u128::from(Nanos::SECOND.0) / u128::from(rate.max(1));
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        self.next.with(|next| {
            next.retain(|_, time| *time > now);
            let begin = next.get(session).map_or(now.0, |time| time.0);
            next.insert(session.clone(), Nanos(begin.saturating_add(takes)));
            Duration::from_nanos(begin.saturating_sub(now.0))
        })
    }
}

/// A file that is being sent.
struct Transfer<'t> {
    access: &'t RecordAccess,
    request: &'t RecordFileRequest,
    open: &'t OpenRecordFile,
    /// Sent bytes that are not reported to the session yet.
    unreported: u64,
    /// Time of the last part.
    last_sent: Instant,
}

impl<L: PeerStream> Connection<'_, L> {
    /// Sends the list of record files in several replies. Returns false if the connection has to be closed.
    pub(super) fn send_record_files(
        &mut self,
        sessions: Vec<SessionRecords>,
        request: &RecordsRequest,
    ) -> io::Result<bool> {
        let daemon = &self.server().daemon;
        for mut session in sessions {
            let mut open = session.open_folders;
            let mut is_at_end = false;
            while !is_at_end {
                if self.refuse_if_ended()? {
                    return Ok(false);
                }
                // The session was closed, or its share ended: the other sessions are still listed.
                if daemon.check_record_access(self.requester(), session.access()).is_err() {
                    break;
                }
                // Files that do not match take time, too, so a reply is sent after a number of files in any case.
                let mut files: Vec<RecordFile> = Vec::new();
                for _ in 0..RECORD_FILES_MAX {
                    match daemon.next_record_file(&mut session, request) {
                        Some(file) => files.extend(file),
                        None => is_at_end = true,
                    }
                    if is_at_end {
                        break;
                    }
                }
                self.send_reply(Reply::RecordFiles { files, open: std::mem::take(&mut open) })?;
                self.charge(0);
                if let Err(why) = self.wait_for_rate(if is_at_end { Nanos(1) } else { cost_of_request(0) }) {
                    return self.refuse(&why).map(|()| false);
                }
            }
        }
        self.send_reply(Reply::Done { notes: Vec::new() }).map(|()| true)
    }

    /// Sends a record file from an offset on. Returns false if the connection has to be closed.
    pub(super) fn send_record_file(
        &mut self,
        access: &RecordAccess,
        request: &RecordFileRequest,
    ) -> io::Result<bool> {
        let server = self.server();
        let Some(_permit) = server.record_fetches.acquire(self.holder()) else {
            let why = format!(
                "{FETCHES_MAX} fetches under this credential are running, which is the maximum: try again when one has ended"
            );
            return self.refuse(&why).map(|()| true);
        };
        let place = (request.folder.as_str(), request.file.as_str());
        let open = match server.daemon.open_record_file(access, place) {
            Ok(Some(open)) => open,
            Ok(None) => return self.send_reply(Reply::RecordsGone).map(|()| true),
            Err(error) => return self.refuse_unreadable(access, request, &error).map(|()| true),
        };
        if request.from > open.bytes {
            let why = format!("the file has {} bytes, so none follow byte {}", open.bytes, request.from);
            return self.refuse(&why).map(|()| true);
        }
        let mut transfer =
            Transfer { access, request, open: &open, unreported: 0, last_sent: Instant::now() };
        let result = self.send_parts(&mut transfer);
        self.report(&mut transfer);
        result
    }

    /// Sends the parts of a file and its hash. Returns false, after a refusal was sent, if the client's right has ended.
    fn send_parts(&mut self, transfer: &mut Transfer<'_>) -> io::Result<bool> {
        let Transfer { access, request, open, .. } = *transfer;
        // The bytes before the offset are read only if the file's hash is not known.
        let mut hash = open.digest.is_none().then(Sha256::new);
        let mut at = if hash.is_some() { 0 } else { request.from };
        let (mut buffer, mut unsent) = (vec![0; PART_BYTES_MAX], 0);
        let part_max = access.rate.map_or(u64::MAX, |rate| rate.max(PART_BYTES_MIN)).min(buffer.len() as u64);
        while at < open.bytes {
            if self.refuse_if_records_ended(access)? {
                return Ok(false);
            }
            let is_sent = at >= request.from;
            let end = if is_sent { open.bytes } else { request.from };
            let length = (end - at).min(if is_sent { part_max } else { PART_BYTES_MAX as u64 });
            let part = buffer.get_mut(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            if let Err(error) = open.file.read_exact_at(part, at) {
                return self.refuse_unreadable(access, request, &error).map(|()| true);
            }
            if let Some(hash) = &mut hash {
                hash.update(&part);
            }
            if is_sent {
                if !self.wait_for_part(transfer, length)? {
                    return Ok(false);
                }
                let reply = Reply::RecordPart {
                    from: at,
                    bytes: open.bytes,
                    length: u32::try_from(length).unwrap_or(0),
                };
                self.send_reply_with_body(reply, part)?;
                (transfer.unreported, transfer.last_sent) = (transfer.unreported + length, Instant::now());
                if transfer.unreported >= REPORTED_BYTES {
                    self.report(transfer);
                }
                self.charge(0);
            } else {
                unsent += length;
                if unsent >= UNSENT_BYTES_MAX {
                    unsent = 0;
                    self.charge(0);
                    // Waits until the charged time is paid for.
                    if let Err(why) = self.wait_for_rate(Nanos(1)) {
                        return self.refuse(&why).map(|()| false);
                    }
                }
                self.keep_alive(transfer)?;
            }
            at += length;
        }
        let sha256 = match (open.digest, hash) {
            (Some(known), _) => known,
            (None, hash) => {
                let digest = Digest(hash.unwrap_or_default().finalize().into());
                let place = (request.folder.as_str(), request.file.as_str());
                self.server().daemon.set_record_digest(access, place, open, digest);
                digest
            }
        };
        self.send_reply(Reply::RecordsSent { bytes: open.bytes, sha256 }).map(|()| true)
    }

    /// Waits until a part may be sent. Returns false, after a refusal was sent, if it may not.
    fn wait_for_part(&mut self, transfer: &mut Transfer<'_>, length: u64) -> io::Result<bool> {
        let cost = cost_of_extra_bytes(usize::try_from(length).unwrap_or(usize::MAX));
        if let Err(why) = self.wait_for_rate(cost) {
            return self.refuse(&why).map(|()| false);
        }
        let access = transfer.access;
        let wait = match access.rate {
            None => return Ok(true),
            Some(0) => {
                let why = format!(
                    "session `{}` has `record_bytes` 0, so none of its records are sent: change the session, or the grant",
                    access.called
                );
                return self.refuse(&why).map(|()| false);
            }
            Some(rate) => self.server().record_pacer.reserve(&access.session, length, rate),
        };
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The right may have ended during the wait.
                return Ok(wait.is_zero() || !self.refuse_if_records_ended(access)?);
            }
            std::thread::sleep(left.min(CHECK_INTERVAL));
            if self.refuse_if_records_ended(access)? {
                return Ok(false);
            }
            self.keep_alive(transfer)?;
        }
    }

    /// Sends an empty part if the client has got nothing for a while.
    fn keep_alive(&mut self, transfer: &mut Transfer<'_>) -> io::Result<()> {
        if transfer.last_sent.elapsed() < KEEPALIVE_INTERVAL {
            return Ok(());
        }
        transfer.last_sent = Instant::now();
        let (from, bytes) = (transfer.request.from, transfer.open.bytes);
        self.send_reply(Reply::RecordPart { from, bytes, length: 0 })
    }

    /// Reports sent bytes to their session.
    fn report(&mut self, transfer: &mut Transfer<'_>) {
        let bytes = Bytes(std::mem::take(&mut transfer.unreported));
        if bytes.0 > 0 {
            self.server().daemon.charge_fetched(self.requester(), &transfer.access.session, bytes);
        }
    }

    /// Refuses a request for a file that cannot be read. Holders do not get the cause, which is logged instead.
    fn refuse_unreadable(
        &mut self,
        access: &RecordAccess,
        request: &RecordFileRequest,
        error: &io::Error,
    ) -> io::Result<()> {
        let file = format!(
            "{}/{}/{}",
            access.session,
            weir_units::escaped(&request.folder),
            weir_units::escaped(&request.file)
        );
        if self.holder().is_none() {
            return self.refuse(&format_args!("record file {file} cannot be read: {error}"));
        }
        log::session(&access.session).warn(&format_args!("record file {file} cannot be read: {error}"));
        self.refuse(&"the file cannot be read; the node's log tells the operator why")
    }

    /// Returns true, after a refusal was sent, if the node stops or the client's right to read has ended.
    fn refuse_if_records_ended(&mut self, access: &RecordAccess) -> io::Result<bool> {
        if self.server().is_stopping() {
            return self.refuse(&"the node stops").map(|()| true);
        }
        match self.server().daemon.check_record_access(self.requester(), access) {
            Ok(()) => Ok(false),
            Err(why) => self.refuse(&why).map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fetches_of_a_session_together_keep_to_its_rate_and_others_do_not_wait() {
        let pacer = RecordPacer::new(Instant::now());
        let [one, other] = ["one", "other"].map(|name| Name::new(name).unwrap());
        // 1,000 bytes a second, of two clients that send a part as soon as they may.
        let mut clients = [Nanos(0); 2];
        let mut sent = 0;
        while let Some(client) =
            clients.iter_mut().min_by_key(|time| time.0).filter(|time| time.0 < 10_000_000_000)
        {
            client.0 += Nanos::from(pacer.reserve_at(&one, 100, 1000, *client)).0;
            // An idle instant, so that the two alternate.
            client.0 += 1;
            sent += 100;
        }
        assert!((9_900..=10_400).contains(&sent), "{sent}");
        let now = Nanos(10_000_000_000);
        assert_eq!(pacer.reserve_at(&other, 100, 1, now), Duration::ZERO);
        assert_eq!(pacer.reserve_at(&other, 1, 1, now), Duration::from_secs(100));
        // A session that does not wait has no entry.
        pacer.reserve_at(&other, 1, 1, Nanos(u64::MAX / 2));
        assert_eq!(pacer.next.with(|next| next.len()), 1);
        assert!(pacer.reserve_at(&other, u64::MAX, 0, Nanos(u64::MAX / 2)) < Duration::MAX);
    }
}
