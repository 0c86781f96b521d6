//! Devices of the host's network: the graph's ends of TAP and TUN devices.

use crate::receive::InterfaceReceiver;
use crate::send::InterfaceSender;
use weir_graph::engine::{HostDeviceKind, HostDeviceOptions};
use weir_netio::{InterfaceSettings, LiveOptions, LiveSource, SocketKind, set_up_interface};

/// The MTU of a new device.
const MTU_DEFAULT: u32 = 1500;

/// Makes a device, or opens one of this name. Returns its name and both ends.
pub fn open(options: &HostDeviceOptions) -> Result<(String, InterfaceReceiver, InterfaceSender), String> {
    let (kind, free_name) = match options.kind {
        HostDeviceKind::Ethernet => (SocketKind::Tap, "tap%d"),
        HostDeviceKind::Ip => (SocketKind::Tun, "tun%d"),
    };
    let name = if options.name.is_empty() { free_name } else { &options.name };
    let live = LiveOptions { kind, reopen: false, ..LiveOptions::default() };
    let mut source = LiveSource::open(name, live).map_err(|error| error.to_string())?;
    let settings = InterfaceSettings {
        address: options.address.map(|prefix| (prefix.address, prefix.mask)),
        gateway: options.gateway,
        ethernet: options.ethernet.map(|address| address.0),
        mtu: (options.mtu != MTU_DEFAULT).then_some(options.mtu),
        is_up: options.address.is_some() || options.is_for_sniffers,
        has_no_arp: options.is_for_sniffers,
    };
    let name = source.name().to_owned();
    set_up_interface(&name, &settings).map_err(|error| error.to_string())?;
    let sink = source.sink().map_err(|error| error.to_string())?;
    let receiver = InterfaceReceiver::of_host_device(source, settings.is_up);
    Ok((name, receiver, InterfaceSender::of_sink(sink)))
}
