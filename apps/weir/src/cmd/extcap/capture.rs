//! Captures a file or an interface, in a view.

use super::ExtcapError;
use super::args::SourceSettings;
use super::pipe::{PipeEnd, ShownPacket, SourceLosses, WiresharkPipe};
use rand_core::{OsRng, RngCore};
use std::time::{Duration, Instant};
use weir_datapath::clock::wall_clock;
use weir_datapath::source::{PacketSource, Poll};
use weir_netio::{
    Block, Capture, CaptureFilter, CaptureInput, InterfaceTexts, LiveOptions, LiveSource, ReceiveDrops,
};
use weir_units::{Bytes, Escape as _, Nanos, Timestamp};
use weir_wire::LinkType;
use weir_wire::view::{PacketView, Transform, ViewKey};

/// Timeout of a poll, and the longest sleep between two looks at the pipe.
const WAIT: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
/// The label of the keys of views. Each capture has a secret of its own, so no two have pseudonyms in common.
const LABEL: &[u8] = b"weir extcap";

/// The part of the packets that is shown.
#[derive(Debug)]
pub struct Shown {
    view: PacketView,
    transform: Transform,
    /// Reads packets as they are.
    select: Option<CaptureFilter>,
}

impl Shown {
    /// Reads the settings.
    pub fn from_settings(settings: &SourceSettings) -> Result<Self, ExtcapError> {
        let view = SourceSettings::text(settings.view.as_ref()).unwrap_or("all").parse::<PacketView>()?;
        let select = SourceSettings::text(settings.select.as_ref()).map(CaptureFilter::with_name_lookup);
        let mut secret = [0; 32];
        OsRng.try_fill_bytes(&mut secret).map_err(|error| ExtcapError::Random(error.into()))?;
        let transform = Transform::new(view, &ViewKey::derive(&secret, LABEL));
        Ok(Self { view, transform, select: select.transpose()? })
    }

    /// Returns the texts about a source for Wireshark.
    pub fn texts(&self, name: String, filter: Option<&CaptureFilter>) -> InterfaceTexts {
        let selected = self.select.as_ref();
        let of = selected
            .map_or_else(String::new, |select| format!(", of those that `{}` selects", select.expression()));
        InterfaceTexts {
            description: format!("view {} ({}){of}", self.view, self.view.in_words()),
            filter: filter.map_or_else(String::new, |filter| filter.expression().to_owned()),
            application: super::application(),
            name,
        }
    }
}

/// Captures a file.
pub fn capture_file(
    settings: &SourceSettings,
    mut shown: Shown,
    filter: Option<CaptureFilter>,
    pipe: PipeEnd,
) -> Result<(), ExtcapError> {
    let file =
        settings.file.as_ref().filter(|file| !file.as_os_str().is_empty()).ok_or(ExtcapError::NoFile)?;
    let mut pace = match SourceSettings::text(settings.pace.as_ref()).unwrap_or("once") {
        "once" => None,
        "own" => Some(ReplayClock::default()),
        other => return Err(ExtcapError::Pace(other.to_owned())),
    };
    let capture = Capture::open(CaptureInput::File(file.clone()))?;
    let name = file.file_name().unwrap_or(file.as_os_str()).escaped().to_string();
    let mut source = PacketSource::Capture(Box::new(capture));
    let mut pipe = WiresharkPipe::new(pipe, shown.texts(name, filter.as_ref()), filter);
    let interfaces = source.totals().interfaces;
    let first = interfaces.iter().zip(0u16..).find_map(|(interface, at)| Some((at, interface.link_type?)));
    let (interface, link_type) = first.unwrap_or((0, LinkType::Ethernet));
    pipe.describe(interface, link_type)?;
    loop {
        match source.next(Nanos(0))? {
            Poll::Block(block) => {
                if !write_block(&block, &mut shown, &mut pipe, pace.as_mut())? {
                    break;
                }
            }
            Poll::End => break,
            Poll::Full | Poll::Quiet(_) | Poll::Event(_) => source.pause(),
        }
        if pipe.is_over() {
            break;
        }
    }
    let truncated = source.totals().truncated.map(|truncated| format!("the capture ends early: {truncated}"));
    pipe.finish(None, SourceLosses::default(), truncated.into_iter().collect())
}

/// Captures an interface.
pub fn capture_interface(
    interface: &str,
    settings: &SourceSettings,
    mut shown: Shown,
    filter: Option<CaptureFilter>,
    pipe: PipeEnd,
) -> Result<(), ExtcapError> {
    let mut options = LiveOptions { reopen: false, ..LiveOptions::default() };
    if let Some(ring) = SourceSettings::text(settings.ring.as_ref()) {
        options.ring = ring.parse::<Bytes>().map_err(|error| ExtcapError::Ring(error.to_string()))?;
    }
    let live = LiveSource::open(interface, options)?;
    let link_type = live.link_type();
    let mut source = PacketSource::Live(Box::new(live));
    let name = interface.escaped().to_string();
    let mut pipe = WiresharkPipe::new(pipe, shown.texts(name, filter.as_ref()), filter);
    pipe.describe(0, link_type)?;
    let mut drops = ReceiveDrops::default();
    while !pipe.is_over() {
        match source.next(WAIT)? {
            Poll::Block(block) => {
                // The packets of this block were in memory before the packets that were lost for lack of it.
                let before = drops.packets();
                write_block(&block, &mut shown, &mut pipe, None)?;
                pipe.sync()?;
                drops = source.live_totals().unwrap_or_default().drops;
                pipe.lose(drops.packets().saturating_sub(before));
            }
            Poll::Full => source.pause(),
            Poll::Quiet(_) => {}
            Poll::Event(event) => pipe.note(format!("weir: {event}")),
            Poll::End => break,
        }
    }
    let drops = source.live_totals().unwrap_or_default().drops;
    let losses = SourceLosses { ring_full: drops.ring_full, invalid: drops.invalid };
    pipe.finish(Some(wall_clock()), losses, Vec::new())
}

/// Writes the packets of a block. Returns false if the capture ended while it waited for the time of a packet.
fn write_block(
    block: &Block,
    shown: &mut Shown,
    pipe: &mut WiresharkPipe,
    mut pace: Option<&mut ReplayClock>,
) -> Result<bool, ExtcapError> {
    let (mut packet, mut view) = (Vec::new(), Vec::new());
    for (i, descriptor) in block.descriptors().iter().enumerate().skip(block.lead()) {
        let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
        block.copy_packet(i, &mut packet);
        if let Some(select) = &shown.select {
            let is_selected = select.matches(link_type, descriptor.wire_len, &packet);
            if !is_selected.map_err(|error| ExtcapError::Filter(error.clone()))? {
                continue;
            }
        }
        let ts = Timestamp(descriptor.ts_ns);
        if let Some(pace) = pace.as_deref_mut()
            && !pace.wait(ts, pipe)?
        {
            return Ok(false);
        }
        view.resize(packet.len(), 0);
        let part = shown.transform.apply(&packet, descriptor, &mut view);
        pipe.write(&ShownPacket {
            ts,
            wire_len: part.wire_len,
            link_type,
            interface: descriptor.interface,
            bytes: view.get(..part.len).unwrap_or_default(),
        })?;
    }
    Ok(true)
}

/// The clock of a replay at the pace of the capture.
#[derive(Debug, Default)]
struct ReplayClock {
    /// The time of the first packet, and the time at which it was shown.
    begin: Option<(Timestamp, Instant)>,
}

impl ReplayClock {
    /// Waits for the time of a packet; not for one that is earlier than the first. Returns false if the capture ended meanwhile.
    fn wait(&mut self, ts: Timestamp, pipe: &mut WiresharkPipe) -> Result<bool, ExtcapError> {
        let (first, begin) = *self.begin.get_or_insert_with(|| (ts, Instant::now()));
        let due = Duration::from_nanos(ts.0.saturating_sub(first.0));
        let mut has_synced = false;
        while let Some(rest) = due.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
            if !std::mem::replace(&mut has_synced, true) {
                pipe.sync()?;
            }
            if pipe.is_over() {
                return Ok(false);
            }
            std::thread::sleep(rest.min(Duration::from_nanos(WAIT.0)));
        }
        Ok(true)
    }
}
