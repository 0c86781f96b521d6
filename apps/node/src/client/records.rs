//! Lists and fetches the stored record files of a node. After a broken connection a fetch resumes over a new one.
//!
//! Nothing that a node sends is trusted. Names that could lead out of a folder, parts that do not continue the file, and
//! parts beyond the file's listed length are errors.

use super::reconnect::{Pauses, reconnect};
use super::{Client, ClientError, connection_error, reply_kind};
use crate::control::protocol::{
    ControlRequest, PART_BYTES_MAX, RecordFile, RecordFileRequest, RecordsRequest, Reply,
};
use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;
use weir_admission::Name;
use weir_export_files::ExportFormat;
use weir_ledger::Digest;
use weir_units::{Timestamp, escaped};

/// The most files of a list. It bounds the memory of a client.
pub const LISTED_FILES_MAX: usize = 1_000_000;

/// A record file in the list of a node. Its names are checked: each is a single component of a path, and no hidden file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRecords {
    /// The session.
    pub session: Name,
    /// The module.
    pub module: Name,
    /// The number at the end of the folder's name `MODULE-NUMBER`, in decimal digits.
    pub number: String,
    /// The stream.
    pub stream: Name,
    /// The name of the file.
    pub file: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The number of rows; `None` if the node does not know it.
    pub rows: Option<u64>,
    /// The earliest and the latest time in the rows; `None` if the rows have no times.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The time at which the file was completed.
    pub completed: Timestamp,
    /// The SHA-256 of the file, if the node knows it.
    pub sha256: Option<Digest>,
}

impl fmt::Display for ListedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.session, self.folder(), self.file)
    }
}

impl ListedRecords {
    /// Returns the name of the file's folder: `MODULE-NUMBER`.
    pub fn folder(&self) -> String {
        format!("{}-{}", self.module, self.number)
    }

    /// Checks the names that a node has sent.
    fn checked(file: RecordFile) -> Result<Self, ClientError> {
        let RecordFile { session, folder, file, bytes, rows, from_ns, to_ns, completed_ns, sha256 } = file;
        let invalid = || {
            let names =
                [&session, &folder, &file].map(|name| escaped(&name.chars().take(80).collect::<String>()));
            ClientError::InvalidReply(format!("`{}` are no names of a record file", names.join("`, `")))
        };
        let is_number = |text: &str| {
            !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let name = |text: &str| Name::new(text).map_err(|_| invalid());
        let (module, number) =
            folder.rsplit_once('-').filter(|(_, number)| is_number(number)).ok_or_else(invalid)?;
        let is_export = ExportFormat::of_file(&file).is_some();
        let stem = file.strip_suffix(".parquet");
        let stem = stem.or_else(|| file.rsplit_once('.').filter(|_| is_export).map(|(stem, _)| stem));
        let stem = stem.ok_or_else(invalid)?;
        let stream = match stem.split_once(".recovered-") {
            Some((stream, number)) if is_number(number) => stream,
            _ => stem,
        };
        Ok(Self {
            session: name(&session)?,
            module: name(module)?,
            number: number.to_owned(),
            stream: name(stream)?,
            bytes,
            rows,
            times: from_ns.zip(to_ns).map(|(from, to)| (Timestamp(from), Timestamp(to))),
            completed: Timestamp(completed_ns),
            sha256,
            file,
        })
    }
}

/// The stored record files of a node, as far as a client may read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordsList {
    /// The complete files.
    pub files: Vec<ListedRecords>,
    /// The number of folders whose files are still being written.
    pub open: u64,
}

impl<S: Read + Write> Client<S> {
    /// Lists stored record files.
    ///
    /// # Errors
    /// The node refuses the request, or its list has invalid names or more than [`LISTED_FILES_MAX`] files.
    pub fn list_records(&mut self, request: RecordsRequest) -> Result<RecordsList, ClientError> {
        self.send(ControlRequest::Records(request), &[])?;
        let mut list = RecordsList::default();
        loop {
            match self.receive()? {
                Reply::RecordFiles { files, open } => {
                    if list.files.len().saturating_add(files.len()) > LISTED_FILES_MAX {
                        let why = format!(
                            "its list has more than {LISTED_FILES_MAX} files: select fewer by a session or by times"
                        );
                        return Err(ClientError::InvalidReply(why));
                    }
                    for file in files {
                        list.files.push(ListedRecords::checked(file)?);
                    }
                    list.open = list.open.saturating_add(open);
                }
                Reply::Done { .. } => return Ok(list),
                other => return Err(ClientError::UnexpectedReply(reply_kind(&other))),
            }
        }
    }
}

/// The error of a fetch.
#[derive(Debug, thiserror::Error)]
pub enum RecordsFetchError {
    /// The node refuses the request, cannot be reached, or sends something else than the file.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The received bytes cannot be written.
    #[error("{0}")]
    Write(io::Error),
}

/// The end of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsFetched {
    /// All bytes were received. Contains the SHA-256 of the whole file on the node.
    Whole(Digest),
    /// The node does not store the file any more.
    Gone,
}

/// Fetches record files over one connection at a time.
pub struct RecordsFetch<'a, S> {
    connect: &'a mut dyn FnMut() -> Result<Client<S>, ClientError>,
    sleep: &'a mut dyn FnMut(Duration),
    /// Is called with the error of a failed connection, and with the pause until the next one.
    report: &'a mut dyn FnMut(&ClientError, Duration),
    client: Client<S>,
}

impl<S> fmt::Debug for RecordsFetch<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordsFetch").finish_non_exhaustive()
    }
}

impl<'a, S: Read + Write> RecordsFetch<'a, S> {
    /// Connects to a node. `sleep` waits before each reconnection, and `report` gets the reason for the reconnection.
    ///
    /// # Errors
    /// The node cannot be reached.
    pub fn new(
        connect: &'a mut dyn FnMut() -> Result<Client<S>, ClientError>,
        sleep: &'a mut dyn FnMut(Duration),
        report: &'a mut dyn FnMut(&ClientError, Duration),
    ) -> Result<Self, ClientError> {
        let client = connect()?;
        Ok(Self { connect, sleep, report, client })
    }

    /// Returns the present connection.
    pub fn client(&mut self) -> &mut Client<S> {
        &mut self.client
    }

    /// Fetches the bytes of a file from the offset `from` on, and passes them to `write` in their order. With the offset
    /// of the file's end, only the hash is fetched.
    ///
    /// # Errors
    /// The node cannot be reached for minutes, refuses the request or sends something else than the file; or `write` fails.
    pub fn fetch(
        &mut self,
        file: &ListedRecords,
        from: u64,
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<RecordsFetched, RecordsFetchError> {
        let (mut at, mut pauses) = (from, Pauses::default());
        loop {
            let begin = at;
            match self.fetch_once(file, &mut at, write) {
                Err(RecordsFetchError::Client(error)) if error.is_transient() => {
                    if at > begin {
                        pauses = Pauses::default();
                    }
                    self.client = reconnect(
                        self.connect,
                        self.sleep,
                        self.report,
                        ClientError::is_transient,
                        error,
                        &mut pauses,
                    )?;
                }
                result => return result,
            }
        }
    }

    /// Fetches a file over the present connection. `at` is the offset of the next byte.
    fn fetch_once(
        &mut self,
        file: &ListedRecords,
        at: &mut u64,
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<RecordsFetched, RecordsFetchError> {
        let invalid = |why: &str| ClientError::InvalidReply(format!("{file}: {why}"));
        let request = RecordFileRequest {
            session: file.session.clone(),
            folder: file.folder(),
            file: file.file.clone(),
            from: *at,
        };
        self.client.send(ControlRequest::FetchRecords(request), &[])?;
        let mut part = Vec::new();
        loop {
            match self.client.receive()? {
                // A part of length 0 states that the node is busy with the file.
                Reply::RecordPart { length: 0, .. } => {}
                Reply::RecordPart { from, bytes, length } => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    if bytes != file.bytes {
                        return Err(invalid("the file has another length than in the list").into());
                    }
                    if from != *at || length > PART_BYTES_MAX || length as u64 > bytes.saturating_sub(from) {
                        return Err(invalid("the part does not continue the file").into());
                    }
                    part.resize(length, 0);
                    self.client.stream.read_exact(&mut part).map_err(connection_error)?;
                    write(&part).map_err(RecordsFetchError::Write)?;
                    *at += length as u64;
                }
                Reply::RecordsSent { bytes, sha256 } if bytes == file.bytes && *at == bytes => {
                    return Ok(RecordsFetched::Whole(sha256));
                }
                Reply::RecordsSent { .. } => {
                    return Err(invalid("the file ends at another byte than in the list").into());
                }
                Reply::RecordsGone => return Ok(RecordsFetched::Gone),
                other => return Err(ClientError::UnexpectedReply(reply_kind(&other)).into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::VecDeque;

    /// A connection with prepared bytes of the node.
    struct Prepared {
        received: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Prepared {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.received.read(to)
        }
    }

    impl Write for Prepared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(reply: Value) -> Vec<u8> {
        format!("{}\n", json!({"weir": 1, "reply": reply})).into_bytes()
    }

    fn part(from: u64, bytes: u64, body: &[u8]) -> Vec<u8> {
        let mut part = line(json!({"record-part": {"from": from, "bytes": bytes, "length": body.len()}}));
        part.extend_from_slice(body);
        part
    }

    fn sent(bytes: u64) -> Vec<u8> {
        line(json!({"records-sent": {"bytes": bytes, "sha256": Digest::of_bytes(b"x")}}))
    }

    fn client(received: Vec<u8>) -> Client<Prepared> {
        Client::new(Prepared { received: io::Cursor::new(received), sent: Vec::new() })
    }

    fn file(bytes: u64) -> ListedRecords {
        let name = |text| Name::new(text).unwrap();
        ListedRecords {
            session: name("alice"),
            module: name("rtt"),
            number: "0".to_owned(),
            stream: name("flows"),
            file: "flows.parquet".to_owned(),
            bytes,
            rows: None,
            times: None,
            completed: Timestamp(1),
            sha256: None,
        }
    }

    /// Fetches a file from an offset over connections on which the node sends these bytes. Returns the result, the
    /// received bytes and the number of pauses.
    fn fetch(
        file: &ListedRecords,
        from: u64,
        connections: Vec<Vec<u8>>,
    ) -> (Result<RecordsFetched, RecordsFetchError>, Vec<u8>, usize) {
        let mut connections: VecDeque<_> = connections.into();
        let (mut written, mut pauses) = (Vec::new(), 0);
        let mut connect = || connections.pop_front().map(client).ok_or(ClientError::Gone);
        let (mut sleep, mut report) = (|_| pauses += 1, |_: &ClientError, _| {});
        let mut fetch = RecordsFetch::new(&mut connect, &mut sleep, &mut report).unwrap();
        let result = fetch.fetch(file, from, &mut |bytes| {
            written.extend_from_slice(bytes);
            Ok(())
        });
        drop(fetch);
        (result, written, pauses)
    }

    #[test]
    fn names_of_a_hostile_node_lead_to_no_other_file() {
        let listed = |session: &str, folder: &str, file: &str| {
            let listed =
                json!({"session": session, "folder": folder, "file": file, "bytes": 1, "completed_ns": 1});
            let list = line(json!({"record-files": {"files": [listed], "open": 0}}));
            client([list, line(json!({"done": {"notes": []}}))].concat())
                .list_records(RecordsRequest::default())
        };
        for (session, folder, file) in [
            ("alice", "rtt-0", "flows.parquet"),
            ("alice", "a-b-17", "flows.recovered-3.parquet"),
            ("a_b", "x-18446744073709551615", "a-b.parquet"),
        ] {
            let list = listed(session, folder, file).unwrap();
            assert_eq!(list.files[0].to_string(), format!("{session}/{folder}/{file}"));
        }
        let evil = [
            "",
            ".",
            "..",
            "../x",
            "../../x",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "a\0b",
            "a\nb",
            "-x",
            ".ssh",
            "A",
            "\u{1b}[2J",
            "x".repeat(5000).as_str(),
        ]
        .map(str::to_owned);
        for evil in &evil {
            for (session, folder, file) in [
                (evil.clone(), "rtt-0".to_owned(), "flows.parquet".to_owned()),
                ("alice".to_owned(), evil.clone(), "flows.parquet".to_owned()),
                ("alice".to_owned(), format!("{evil}-0"), "flows.parquet".to_owned()),
                ("alice".to_owned(), format!("rtt-{evil}"), "flows.parquet".to_owned()),
                ("alice".to_owned(), "rtt-0".to_owned(), evil.clone()),
                ("alice".to_owned(), "rtt-0".to_owned(), format!("{evil}.parquet")),
                ("alice".to_owned(), "rtt-0".to_owned(), format!("flows.recovered-{evil}.parquet")),
                ("alice".to_owned(), "rtt-0".to_owned(), format!("flows.parquet{evil}/")),
            ] {
                let error = listed(&session, &folder, &file).unwrap_err().to_string();
                assert!(
                    error.contains("are no names of a record file"),
                    "{session} {folder} {file}: {error}"
                );
                assert!(error.chars().all(weir_units::is_plain), "{error:?}");
            }
        }
        // Files with the suffixes of weir's partial, lock and text files are not record files.
        for file in ["flows.parquet.part", ".weir-records.lock", "flows.csv"] {
            listed("alice", "rtt-0", file).unwrap_err();
        }
    }

    #[test]
    fn a_fetch_resumes_where_its_connection_breaks() {
        let whole = b"0123456789";
        let first = [part(2, 10, b""), part(2, 10, &whole[2..5]), part(5, 10, b"5678")].concat();
        let second = [part(9, 10, &whole[9..]), sent(10)].concat();
        let cut = |len: usize| first[..len].to_vec();
        let line_of_second_part = first.len() - part(5, 10, b"5678").len();
        let (result, written, pauses) = fetch(&file(10), 2, vec![first.clone(), second]);
        assert_eq!(result.unwrap(), RecordsFetched::Whole(Digest::of_bytes(b"x")));
        assert_eq!((written.as_slice(), pauses), (&whole[2..], 1));
        // The connection breaks before the first line, in the line of a part, and in the bytes of a part.
        for len in [0, 10, line_of_second_part + 10, first.len() - 1] {
            let got = if len < line_of_second_part { 2 } else { 5 };
            let rest = [part(got, 10, &whole[usize::try_from(got).unwrap()..]), sent(10)].concat();
            let (result, written, pauses) = fetch(&file(10), 2, vec![cut(len), rest]);
            result.unwrap();
            assert_eq!((written.as_slice(), pauses), (&whole[2..], 1), "{len}");
        }
        let (result, _, pauses) = fetch(&file(10), 0, vec![Vec::new()]);
        assert!(matches!(result, Err(RecordsFetchError::Client(ClientError::Gone))) && pauses > 10);
        let gone = fetch(&file(10), 0, vec![line(json!("records-gone"))]);
        assert_eq!((gone.0.unwrap(), gone.2), (RecordsFetched::Gone, 0));
    }

    #[test]
    fn parts_beyond_the_file_or_out_of_order_and_other_replies_are_refused() {
        let long = vec![0; PART_BYTES_MAX + 1];
        for (received, says) in [
            (part(0, 11, b"x"), "another length than in the list"),
            (part(1, 10, b"x"), "does not continue the file"),
            (part(0, 10, b"0123456789a"), "does not continue the file"),
            (part(0, 10, &long), "does not continue the file"),
            (sent(10), "ends at another byte"),
            ([part(0, 10, b"0123"), sent(4)].concat(), "ends at another byte"),
            ([part(0, 10, b"0123"), part(0, 10, b"0123")].concat(), "does not continue the file"),
            (line(json!({"done": {"notes": []}})), "does not fit the request"),
            (line(json!({"refused": {"why": "your credential is revoked"}})), "your credential is revoked"),
        ] {
            let (result, written, pauses) = fetch(&file(10), 0, vec![received]);
            let error = result.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(written.len() <= 10 && pauses == 0);
        }
        // The client refuses a stated length above that of the longest part, and allocates no memory for it.
        let huge = line(json!({"record-part": {"from": 0, "bytes": u64::MAX, "length": u32::MAX}}));
        assert!(fetch(&file(u64::MAX), 0, vec![huge]).0.is_err());
    }

    #[test]
    fn bytes_that_cannot_be_written_end_the_fetch() {
        let mut connect = || Ok(client([part(0, 1, b"x"), sent(1)].concat()));
        let (mut sleep, mut report) = (|_| {}, |_: &ClientError, _| {});
        let mut fetch = RecordsFetch::new(&mut connect, &mut sleep, &mut report).unwrap();
        let result = fetch.fetch(&file(1), 0, &mut |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(
            matches!(result, Err(RecordsFetchError::Write(error)) if error.kind() == io::ErrorKind::StorageFull)
        );
    }
}
