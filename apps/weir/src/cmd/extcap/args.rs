//! The arguments of `weir extcap`: those that Wireshark passes to each extcap program, and those of the settings that
//! this program offers. Settings are texts here, since Wireshark shows an error in a dialog, where one line is best.

use crate::cmd::node::args::NodeAddressArgs;
use clap::Args;
use std::path::PathBuf;

/// `weir extcap`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Wireshark and tshark start this command themselves, once it is installed:

  weir extcap --install                                     in your folder of extcap programs, which tshark names
  weir extcap --install ~/.local/lib/wireshark/extcap       in this folder
  weir extcap --install --socket /run/weir/node.sock        with sessions of this node; without options, of the default socket
  weir extcap --uninstall

Then `tshark -D` and Wireshark list weir-capture, weir-interface-NAME and weir-session-NAME:

  tshark -i weir-interface-eth0 -o extcap.weir_interface_eth_.view:addresses=anonymised
  tshark -i weir-capture -o extcap.weir_capture.file:trace.pcap -f 'udp port 53'

A name in -o is that of the interface in lower case, with _ for 0 and for all characters that are not letters or digits. The capture
filter (-f) reads packets as the view shows them.")]
pub struct ExtcapArgs {
    /// The node whose sessions are listed.
    #[command(flatten)]
    pub address: NodeAddressArgs,
    /// Write a script that starts this command into DIR, a folder of extcap programs, with the options that name a node. Without DIR, into
    /// the personal one that tshark names
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "uninstall")]
    pub install: Option<Option<PathBuf>>,
    /// Remove the script from DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub uninstall: Option<Option<PathBuf>>,
    /// The arguments of Wireshark.
    #[command(flatten)]
    pub wireshark: WiresharkArgs,
    /// The settings of a source.
    #[command(flatten)]
    pub settings: SourceSettings,
}

/// The arguments by which Wireshark calls an extcap program (extcap(4)).
#[derive(Debug, Args)]
#[command(next_help_heading = "Options that Wireshark passes")]
pub struct WiresharkArgs {
    /// List the sources of packets
    #[arg(long)]
    pub extcap_interfaces: bool,
    /// Wireshark's version
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    pub extcap_version: Option<Option<String>>,
    /// The source that the other options are about
    #[arg(long, value_name = "NAME")]
    pub extcap_interface: Option<String>,
    /// List the link types of the source
    #[arg(long)]
    pub extcap_dlts: bool,
    /// List the settings of the source
    #[arg(long)]
    pub extcap_config: bool,
    /// List the values of this setting again
    #[arg(long, value_name = "SETTING", hide = true)]
    pub extcap_reload_option: Option<String>,
    /// The capture filter; without --capture, it is checked
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub extcap_capture_filter: Option<String>,
    /// Capture from the source
    #[arg(long)]
    pub capture: bool,
    /// The pipe that packets are written to
    #[arg(long, value_name = "PATH")]
    pub fifo: Option<PathBuf>,
    /// Pipe for messages of a toolbar, which there is none of
    #[arg(long, value_name = "PATH", hide = true)]
    pub extcap_control_in: Option<PathBuf>,
    /// Pipe for messages to a toolbar, which there is none of
    #[arg(long, value_name = "PATH", hide = true)]
    pub extcap_control_out: Option<PathBuf>,
    /// Clean up after a capture that was killed: nothing is left of one
    #[arg(long, hide = true)]
    pub extcap_cleanup_postkill: bool,
}

/// The settings of all kinds of sources. An empty text is no setting.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Settings of a source")]
pub struct SourceSettings {
    /// weir-capture: the capture file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// weir-capture: `once` for all packets at once, `own` for the pace at which they were captured
    #[arg(long, value_name = "PACE", allow_hyphen_values = true)]
    pub pace: Option<String>,
    /// weir-capture, weir-interface: the view that packets are shown in, as for a channel
    #[arg(long, value_name = "VIEW", allow_hyphen_values = true)]
    pub view: Option<String>,
    /// weir-capture, weir-interface: show only packets that match this filter, which reads them as they are, as an operator's filter of a
    /// channel does
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true)]
    pub select: Option<String>,
    /// weir-interface: memory for packets that wait [default: 64 MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub ring: Option<String>,
    /// weir-session: the channel whose packets are shown [default: main]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub channel: Option<String>,
    /// weir-session: follow this module of the session, whose rows are packets, instead of loading one
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub module: Option<String>,
}

impl SourceSettings {
    /// Returns a setting without surrounding white space, unless it is empty.
    pub fn text(setting: Option<&String>) -> Option<&str> {
        setting.map(|text| text.trim()).filter(|text| !text.is_empty())
    }
}
