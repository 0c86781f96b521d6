//! Captures the packets of a session, as its modules see them.
//!
//! A node has no request for packets. The packets are the rows of a module in the session, which this command loads and follows.
//! So they leave the node as every record does: only to those who may follow the session, within its limits of records,
//! and never with bytes that the session's modules cannot see.

use super::ExtcapError;
use super::args::SourceSettings;
use super::pipe::{PipeEnd, ShownPacket, SourceLosses, WiresharkPipe};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, Name, StreamField};
use weir_datapath::clock::wall_clock;
use weir_netio::{CaptureFilter, InterfaceTexts};
use weir_node::client::followed::{self, FollowEvent, Followed};
use weir_node::client::{Client, ClientError, NodeLocation, reply_kind};
use weir_node::control::protocol::{ControlRequest, Reply, Snapshot};
use weir_node::control::spec::ModuleSpec;
use weir_units::{Timestamp, escaped};
use weir_wire::LinkType;

/// The shipped module whose rows are packets.
const MODULE: &str = "packets";
/// The stream with the packets.
const STREAM: &str = "packets";
/// The interval at which signals and the pipe are looked at while no rows arrive.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The most rows between two writes to the pipe.
const ROWS_AT_ONCE: usize = 1024;

/// Captures the packets of a session.
pub fn capture_session(
    session: &str,
    node: &NodeLocation,
    settings: &SourceSettings,
    filter: Option<CaptureFilter>,
    pipe: PipeEnd,
) -> Result<(), ExtcapError> {
    let name = |what: &'static str, text: &str| {
        Name::new(text).map_err(|error| ExtcapError::Name { what, name: text.to_owned(), error })
    };
    let session = name("session", session)?;
    let channel = name("channel", SourceSettings::text(settings.channel.as_ref()).unwrap_or("main"))?;
    let given =
        SourceSettings::text(settings.module.as_ref()).map(|text| name("module", text)).transpose()?;
    // Several captures of a session can run at a time.
    let own = name("module", &format!("{MODULE}-{}", std::process::id()))?;
    let snapshot = snapshot(node)?;
    let texts = texts(&snapshot, &session, &channel, filter.as_ref());
    let pipe = WiresharkPipe::new(pipe, texts, filter);
    let Some(module) = given else {
        let loaded = LoadedModule::load(node, session.clone(), own.clone(), channel)?;
        let ended = follow(node, &session, &own, pipe);
        let unloaded = loaded.unload(node);
        return ended.and(unloaded);
    };
    follow(node, &session, &module, pipe)
}

/// Returns the names of the node's sessions.
pub fn session_names(node: &NodeLocation) -> Result<Vec<String>, ExtcapError> {
    Ok(snapshot(node)?.sessions.into_iter().map(|session| session.name).collect())
}

fn snapshot(node: &NodeLocation) -> Result<Box<Snapshot>, ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Show, &[])?;
    match client.receive()? {
        Reply::Snapshot(snapshot) => Ok(snapshot),
        other => Err(ClientError::UnexpectedReply(reply_kind(&other))),
    }
}

/// The module that this command has loaded into the session.
#[derive(Debug)]
struct LoadedModule {
    session: Name,
    module: Name,
}

impl LoadedModule {
    fn load(node: &NodeLocation, session: Name, module: Name, channel: Name) -> Result<Self, ExtcapError> {
        let spec = ModuleSpec {
            name: Some(module.clone()),
            module: MODULE.to_owned(),
            settings: BTreeMap::new(),
            channel,
            cpu: Name::new("main").map_err(|error| ExtcapError::Name {
                what: "CPU",
                name: "main".to_owned(),
                error,
            })?,
            unmetered: false,
        };
        let request = ControlRequest::Load {
            session: session.clone(),
            module: spec,
            signatures: Vec::new(),
            replace: None,
        };
        Client::connect_to(node)?.execute(request, &[])?;
        Ok(Self { session, module })
    }

    fn unload(self, node: &NodeLocation) -> Result<(), ExtcapError> {
        let request = ControlRequest::Unload { session: self.session, module: self.module };
        match Client::connect_to(node).and_then(|mut client| client.execute(request, &[])) {
            // A session or node that has ended has ended the module, too.
            Ok(_) | Err(ClientError::Refused(_)) => Ok(()),
            Err(error) if error.is_unreachable() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Follows the module until the capture ends.
fn follow(
    node: &NodeLocation,
    session: &Name,
    module: &Name,
    mut pipe: WiresharkPipe,
) -> Result<(), ExtcapError> {
    let stream = Name::new(STREAM).map_err(|error| ExtcapError::Name {
        what: "stream",
        name: STREAM.to_owned(),
        error,
    })?;
    let mut client = Client::connect_to(node)?;
    let request = ControlRequest::Follow {
        session: session.clone(),
        module: Some(module.clone()),
        streams: vec![stream],
    };
    client.send(request, &[])?;
    let followed = Followed::from_reply(client.receive()?)?;
    let declared = followed.modules.first().and_then(|module| {
        let place = module.manifest.streams.iter().position(|stream| stream.name.as_str() == STREAM)?;
        Some((place, PacketFields::of(module.manifest.streams.get(place)?)?))
    });
    let Some((place, fields)) = declared else { return Err(ExtcapError::NoPackets(module.clone())) };
    let events = followed::receive(client)?;
    let mut rows = PacketRows { place, fields, next: 0, lost: 0 };
    let ended = receive(&mut pipe, &followed, &events, &mut rows);
    // The node ends the rows, as when a share is removed: the reason belongs into the capture.
    let comments = match ended {
        Ok(notes) => notes,
        Err(ExtcapError::Client(error)) => vec![error.to_string()],
        Err(error) => return Err(error),
    };
    pipe.finish(Some(wall_clock()), SourceLosses { ring_full: rows.lost, invalid: 0 }, comments)
}

/// Returns the texts about a session for Wireshark. A node states the view to those who may see the session's channels.
fn texts(
    snapshot: &Snapshot,
    session: &Name,
    channel: &Name,
    filter: Option<&CaptureFilter>,
) -> InterfaceTexts {
    let status = snapshot.sessions.iter().find(|status| status.name == session.as_str());
    let found = status.and_then(|status| status.channels.iter().find(|found| found.name == channel.as_str()));
    let view = found.map_or_else(String::new, |found| {
        let view = if found.view.is_empty() { "all" } else { &found.view };
        let selects = if found.filter.is_empty() {
            String::new()
        } else {
            format!(", filter `{}`", escaped(&found.filter))
        };
        format!(": channel {channel} of {}, view {}{selects}", escaped(&found.interface), escaped(view))
    });
    InterfaceTexts {
        application: super::application(),
        name: format!("{session}/{channel}"),
        description: format!("session {session} on node {}{view}", escaped(&snapshot.node)),
        filter: filter.map_or_else(String::new, |filter| filter.expression().to_owned()),
    }
}

/// Writes rows until the capture or the rows end. Returns the node's notes about the end.
fn receive(
    pipe: &mut WiresharkPipe,
    followed: &Followed,
    events: &Receiver<Result<FollowEvent, ClientError>>,
    rows: &mut PacketRows,
) -> Result<Vec<String>, ExtcapError> {
    // Wireshark needs a link type before the first packet to show that the capture has begun.
    pipe.describe(0, LinkType::Ethernet)?;
    while !pipe.is_over() {
        let mut next = match events.recv_timeout(CHECK_INTERVAL) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(ClientError::Gone.into()),
        };
        for _ in 0..ROWS_AT_ONCE {
            let Some(event) = next.take() else { break };
            match event? {
                FollowEvent::Row { stream, row, tail } => {
                    followed.check(stream, &row, &tail)?;
                    if usize::from(stream.stream) == rows.place {
                        rows.write(pipe, &row, &tail)?;
                    }
                }
                // The gap in the numbers of the packets counts these, too.
                FollowEvent::Missed { .. } => {}
                FollowEvent::End { notes } => return Ok(notes),
            }
            next = events.try_recv().ok();
        }
        pipe.sync()?;
    }
    Ok(Vec::new())
}

/// The fields of a stream of packets.
#[derive(Debug)]
struct PacketFields {
    time: StreamField,
    earlier_packets: StreamField,
    link_type: StreamField,
    wire_bytes: StreamField,
    packet: StreamField,
}

impl PacketFields {
    /// Returns the fields; `None` for a stream without one of them.
    fn of(stream: &DeclaredStream) -> Option<Self> {
        let field = |name: &str, ty: FieldType| {
            stream.fields.iter().find(|field| field.name.as_str() == name && field.ty == ty).cloned()
        };
        Some(Self {
            time: field("time", FieldType::Timestamp)?,
            earlier_packets: field("earlier_packets", FieldType::U64)?,
            link_type: field("link_type", FieldType::U16)?,
            wire_bytes: field("wire_bytes", FieldType::U32)?,
            packet: field("packet", FieldType::Bytes)?,
        })
    }
}

/// The rows of a stream of packets so far.
#[derive(Debug)]
struct PacketRows {
    /// Index of the stream in the module's manifest.
    place: usize,
    fields: PacketFields,
    /// The number of the next packet, if none is lost.
    next: u64,
    lost: u64,
}

impl PacketRows {
    fn write(&mut self, pipe: &mut WiresharkPipe, row: &[u8], tail: &[u8]) -> Result<(), ExtcapError> {
        let unsigned = |field: &StreamField| match field.read(row, tail) {
            Some(FieldValue::Unsigned(value)) => value,
            _ => 0,
        };
        let number = unsigned(&self.fields.earlier_packets);
        // A module that was replaced begins anew. The first number is not 0 if the module was there before.
        let gap = if self.next == 0 { 0 } else { number.saturating_sub(self.next) };
        self.next = number.saturating_add(1);
        self.lost = self.lost.saturating_add(gap);
        pipe.lose(gap);
        let link_type = u32::try_from(unsigned(&self.fields.link_type)).unwrap_or(u32::MAX);
        let link_type = LinkType::try_from(link_type)?;
        let bytes = match self.fields.packet.read(row, tail) {
            Some(FieldValue::Bytes(bytes)) => bytes,
            _ => &[],
        };
        pipe.write(&ShownPacket {
            ts: Timestamp(unsigned(&self.fields.time)),
            wire_len: u32::try_from(unsigned(&self.fields.wire_bytes)).unwrap_or(u32::MAX),
            link_type,
            interface: 0,
            bytes,
        })
    }
}
