//! `weir extcap`: the program that Wireshark and tshark start to list sources of packets, to ask for their settings, and
//! to capture from them (extcap(4)).

pub mod args;
mod capture;
mod install;
mod pipe;
mod sentences;
mod session;
mod source_name;

use crate::Failure;
use crate::cmd::node::{FollowError, NodeCommandError};
use args::{ExtcapArgs, SourceSettings};
use capture::Shown;
use pipe::PipeEnd;
use sentences::Sentence;
use source_name::SourceId;
use std::io::{self, Write};
use std::path::PathBuf;
use weir_admission::{Name, NameError};
use weir_datapath::source::FetchError;
use weir_netio::{CaptureFilter, CaptureFilterError, LiveError, OpenError, WriteError, interface_names};
use weir_node::client::ClientError;
use weir_node::client::followed::FollowedError;
use weir_units::Escape as _;
use weir_wire::view::ViewError;
use weir_wire::{LinkType, UnknownLinkType};

/// The most interfaces, and the most sessions, that are listed: Wireshark starts this program once for each.
const LISTED_MAX: usize = 64;
/// The number of a link type that only the capture itself states (LINKTYPE_USER0).
const LINK_TYPE_OF_CAPTURE: u16 = 147;

/// Errors of `weir extcap`.
#[derive(Debug, thiserror::Error)]
pub enum ExtcapError {
    /// The command line asks for nothing.
    #[error(
        "Wireshark starts this command: install it with `weir extcap --install`, or read `weir help extcap`"
    )]
    NoAction,
    /// `--extcap-interface` is missing.
    #[error("--extcap-interface NAME is needed: `weir extcap --extcap-interfaces` lists the names")]
    NoSource,
    /// There is no such source.
    #[error("there is no source `{}`: `weir extcap --extcap-interfaces` lists them", .0.escape_debug())]
    UnknownSource(String),
    /// `--fifo` is missing.
    #[error("--capture needs --fifo PATH")]
    NoPipe,
    /// The capture file is not set.
    #[error(
        "no capture file is set: choose one in the settings of weir-capture (the gear in Wireshark, `-o extcap.weir_capture.file:PATH` in tshark)"
    )]
    NoFile,
    /// The pace is not one of those that exist.
    #[error("the pace `{}` is neither `once` nor `own`", .0.escape_debug())]
    Pace(String),
    /// The size of the ring is not valid.
    #[error("ring: {0}")]
    Ring(String),
    /// The view is not valid.
    #[error(transparent)]
    View(#[from] ViewError),
    /// A filter is not valid, or does not fit the packets.
    #[error(transparent)]
    Filter(#[from] CaptureFilterError),
    /// A name is not valid.
    #[error("`{}` cannot be the name of a {what}: {error}", name.escape_debug())]
    Name {
        /// The kind of the named thing.
        what: &'static str,
        /// The name.
        name: String,
        /// The fault of the name.
        error: NameError,
    },
    /// The module has no stream of packets.
    #[error(
        "module {0} has no stream `packets` with the fields of the module packets: `weir modules packets` lists them"
    )]
    NoPackets(Name),
    /// The system gives no random bytes.
    #[error("there are no random bytes for pseudonyms: {0}")]
    Random(io::Error),
    /// The capture cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Packets cannot be read any further.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A packet has a link type that weir does not read.
    #[error(transparent)]
    LinkType(#[from] UnknownLinkType),
    /// The pipe cannot be opened or written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signals(io::Error),
    /// The node cannot be named from the options.
    #[error(transparent)]
    Node(#[from] Box<NodeCommandError>),
    /// The node cannot be reached, or refuses the request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node's rows cannot be followed.
    #[error(transparent)]
    Follow(Box<FollowError>),
    /// There is no folder for the script.
    #[error(
        "no folder for extcap programs is known: tshark is not installed, so name the folder, as in `weir extcap --install ~/.local/lib/wireshark/extcap`"
    )]
    NoFolder,
    /// The script cannot be written or removed.
    #[error("{}: {source}", path.escaped())]
    Install {
        /// The script.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another file is in the script's place.
    #[error("{}: this file was not made by `weir extcap --install`, so it is left alone", .0.escaped())]
    NotOurs(PathBuf),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl ExtcapError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoAction
                | Self::NoSource
                | Self::UnknownSource(_)
                | Self::NoPipe
                | Self::NoFile
                | Self::Pace(_)
                | Self::Ring(_)
                | Self::View(_)
                | Self::Filter(_)
                | Self::Name { .. }
        )
    }
}

impl From<FollowError> for ExtcapError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Client(error) => Self::Client(error),
            error => Self::Follow(Box::new(error)),
        }
    }
}

impl From<FollowedError> for ExtcapError {
    fn from(error: FollowedError) -> Self {
        FollowError::from(error).into()
    }
}

/// Carries out what Wireshark or the user asks for.
pub fn extcap(out: &mut impl Write, args: &ExtcapArgs) -> Result<(), Failure> {
    let asked = &args.wireshark;
    if let Some(folder) = &args.install {
        return Ok(install::install(out, folder.as_deref(), &args.address)?);
    }
    if let Some(folder) = &args.uninstall {
        return Ok(install::uninstall(out, folder.as_deref())?);
    }
    if asked.extcap_interfaces {
        list_sources(out, args)?;
        return Ok(());
    }
    if asked.extcap_cleanup_postkill {
        return Ok(());
    }
    let Some(name) = &asked.extcap_interface else {
        let wants = asked.extcap_dlts
            || asked.extcap_config
            || asked.capture
            || asked.extcap_capture_filter.is_some();
        return Err(if wants { ExtcapError::NoSource } else { ExtcapError::NoAction }.into());
    };
    let source = SourceId::parse(name).ok_or_else(|| ExtcapError::UnknownSource(name.clone()))?;
    let filter =
        SourceSettings::text(asked.extcap_capture_filter.as_ref()).map(CaptureFilter::with_name_lookup);
    if asked.capture {
        return Ok(pipe::without_broken_pipe(capture(args, &source, filter))?);
    }
    if asked.extcap_dlts {
        write_link_types(out, &source)?;
    } else if asked.extcap_config {
        // Lists of values do not change, so a reload needs none of them again.
        if asked.extcap_reload_option.is_none() {
            write_settings(out, &source)?;
        }
    } else if let Some(filter) = filter {
        // Wireshark takes a filter as valid if nothing is printed.
        if let Err(error) = filter {
            writeln!(out, "{error}")?;
        }
    } else {
        return Err(ExtcapError::NoAction.into());
    }
    Ok(())
}

/// Captures from a source until Wireshark ends the capture.
fn capture(
    args: &ExtcapArgs,
    source: &SourceId,
    filter: Option<Result<CaptureFilter, CaptureFilterError>>,
) -> Result<(), ExtcapError> {
    let settings = &args.settings;
    // The pipe comes first: after an error, its end is the end of the capture for Wireshark.
    let pipe = PipeEnd::open(args.wireshark.fifo.as_deref().ok_or(ExtcapError::NoPipe)?)?;
    let filter = filter.transpose()?;
    match source {
        SourceId::Capture => capture::capture_file(settings, Shown::from_settings(settings)?, filter, pipe),
        SourceId::Interface(interface) => {
            let shown = Shown::from_settings(settings)?;
            capture::capture_interface(interface, settings, shown, filter, pipe)
        }
        SourceId::Session(session) => {
            let node = args.address.resolve().map_err(Box::new)?;
            session::capture_session(session, &node, settings, filter, pipe)
        }
    }
}

/// Returns the name and version of this program, for captures.
fn application() -> String {
    format!("weir {}", env!("CARGO_PKG_VERSION"))
}

/// Lists the sources. A system without interfaces or a node has fewer.
fn list_sources(out: &mut impl Write, args: &ExtcapArgs) -> io::Result<()> {
    let version = Sentence::new("extcap").with("version", env!("CARGO_PKG_VERSION")).with("display", "weir");
    writeln!(out, "{version}")?;
    let interfaces = interface_names().unwrap_or_default();
    let sessions = args.address.resolve().ok().and_then(|node| session::session_names(&node).ok());
    let interfaces = interfaces.into_iter().take(LISTED_MAX).map(SourceId::Interface);
    let sessions = sessions.unwrap_or_default().into_iter().take(LISTED_MAX).map(SourceId::Session);
    for source in std::iter::once(SourceId::Capture).chain(interfaces).chain(sessions) {
        writeln!(
            out,
            "{}",
            Sentence::new("interface").with("value", source.name()).with("display", &source)
        )?;
    }
    Ok(())
}

/// Lists the link types of a source.
fn write_link_types(out: &mut impl Write, source: &SourceId) -> Result<(), Failure> {
    let (number, name, display) = match source {
        SourceId::Interface(interface) => {
            let link_type = weir_netio::link_type_of(interface).map_err(ExtcapError::from)?;
            (link_type.number(), format!("LINKTYPE_{}", link_type.number()), link_type.name())
        }
        SourceId::Capture | SourceId::Session(_) => {
            (LINK_TYPE_OF_CAPTURE, "USER0".to_owned(), "as the packets have it")
        }
    };
    let name = if number == LinkType::Ethernet.number() { "EN10MB".to_owned() } else { name };
    let sentence = Sentence::new("dlt").with("number", number).with("name", name).with("display", display);
    writeln!(out, "{sentence}")?;
    Ok(())
}

/// Lists the settings of a source.
fn write_settings(out: &mut impl Write, source: &SourceId) -> io::Result<()> {
    let mut number = 0;
    let mut setting = |call: &'static str, display: &str, kind: &'static str, tooltip: &str| {
        let sentence =
            Sentence::new("arg").with("number", number).with("call", call).with("display", display);
        number += 1;
        (number - 1, sentence.with("tooltip", tooltip).with("type", kind))
    };
    if *source == SourceId::Capture {
        let tip = "pcap or pcapng, also gzip or zstd";
        let (_, sentence) = setting("--file", "Capture file", "fileselect", tip);
        writeln!(out, "{}", sentence.with("mustexist", true).with("required", true))?;
        let tip = "All packets at once, or each at the time that it has in the capture";
        let (number, sentence) = setting("--pace", "Pace", "selector", tip);
        writeln!(out, "{}", sentence.with("default", "once"))?;
        for (value, display) in [("once", "at once"), ("own", "as captured")] {
            let sentence =
                Sentence::new("value").with("arg", number).with("value", value).with("display", display);
            writeln!(out, "{}", sentence.with("default", value == "once"))?;
        }
    }
    match source {
        SourceId::Capture | SourceId::Interface(_) => {
            // A list that takes other texts, too, would need a version of Wireshark after 4.0.
            let tip = "The part of each packet that is shown: all, or as for a channel, such as payload=none or addresses=anonymised; \
                       pseudonyms are new in each capture";
            writeln!(out, "{}", setting("--view", "View", "string", tip).1.with("default", "all"))?;
            let tip =
                "Filter that reads the packets as they are; the capture filter reads them as they are shown";
            writeln!(out, "{}", setting("--select", "Packets", "string", tip).1)?;
            if matches!(source, SourceId::Interface(_)) {
                let tip = "Memory for packets that wait while Wireshark is busy";
                writeln!(out, "{}", setting("--ring", "Memory", "string", tip).1.with("default", "64MiB"))?;
            }
        }
        SourceId::Session(_) => {
            let tip = "The channel of the session whose packets are shown";
            writeln!(out, "{}", setting("--channel", "Channel", "string", tip).1.with("default", "main"))?;
            let tip = "A module of the session that emits packets; if empty, the module packets is loaded, and unloaded at the end";
            writeln!(out, "{}", setting("--module", "Module", "string", tip).1)?;
        }
    }
    Ok(())
}
