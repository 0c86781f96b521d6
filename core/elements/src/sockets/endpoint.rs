//! The element behind each of the classes: it sends the packets of its input, and emits those that it receives.

use crate::devices::losses::LossCounts;
use core::net::Ipv4Addr;
use std::collections::VecDeque;
use weir_graph::arguments::{ArgumentFault, ElementArguments};
use weir_graph::engine::{
    DST_IP, EXTRA_LENGTH, Element, ElementContext, EmittingElement, GraphPacket, HEADROOM, PacketSocket,
    Reason, Services, SocketEvents, SocketOptions, SocketSend, SocketState, TaskRun, TextOutput, WaitsFor,
    most_packets,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The time after which packets for which there was no room are sent again.
const RETRY_AFTER: Nanos = Nanos(200_000);

/// The most pushed packets that wait for room. Further packets are lost.
const WAITING_MAX: usize = 1024;

/// The most packets that are sent in one turn.
const SENT_MAX: usize = 64;

/// The most room before packets.
const HEADROOM_MAX: u32 = 8192;

/// The longest received packet.
const SNAP_MAX: u32 = 1 << 20;

/// The longest received packet without an argument.
const SNAP_DEFAULT: u32 = 2048;

/// The reason for pushed packets beyond the room.
const TOO_MANY: &str = "too many packets wait for room in the socket";

/// The arguments that all classes have.
pub struct CommonArguments {
    pub snap: usize,
    pub headroom: usize,
}

impl CommonArguments {
    /// Reads SNAPLEN and HEADROOM.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let snap: u32 = args.keyword("SNAPLEN").within(1..=SNAP_MAX).or(SNAP_DEFAULT);
        let headroom_default = u32::try_from(HEADROOM).unwrap_or(0);
        let headroom: u32 = args.keyword("HEADROOM").within(0..=HEADROOM_MAX).or(headroom_default);
        Self { snap: snap as usize, headroom: headroom as usize }
    }
}

/// The arguments about the kernel's buffers and about time stamps.
pub struct BufferArguments {
    pub send_buffer: Option<u32>,
    pub receive_buffer: Option<u32>,
    pub has_time: bool,
}

impl BufferArguments {
    /// Reads RCVBUF, SNDBUF and TIMESTAMP.
    pub fn read(args: &mut ElementArguments<'_, '_>) -> Self {
        let size = |size: &i32| match size {
            0.. => Ok(()),
            _ => Err(ArgumentFault::Other("expected a size in bytes".to_owned())),
        };
        let receive: Option<i32> = args.keyword("RCVBUF").checked(size).optional();
        let send: Option<i32> = args.keyword("SNDBUF").checked(size).optional();
        let bytes = |size: Option<i32>| size.and_then(|size| u32::try_from(size).ok());
        let has_time = args.keyword("TIMESTAMP").or(true);
        Self { send_buffer: bytes(send), receive_buffer: bytes(receive), has_time }
    }
}

/// An element with a socket.
pub struct SocketElement {
    pub options: SocketOptions,
    pub headroom: usize,
    pub has_time: bool,
    /// Packets are IPv4, and get their headers marked. Others are discarded.
    pub is_ip: bool,
    /// News about connections is written to standard error.
    pub is_verbose: bool,
    /// The elements with the routes to peers that may connect, and to those that may not.
    pub allow: Option<String>,
    pub deny: Option<String>,
    /// The rights that the socket needs, if it needs any.
    pub needs: Option<String>,
    pub state: EndpointState,
}

/// The state of a socket while the graph runs.
#[derive(Default)]
pub struct EndpointState {
    socket: Option<Box<dyn PacketSocket>>,
    /// The packets that were pulled or pushed, and not sent yet.
    waiting: VecDeque<GraphPacket>,
    waits_for: WaitsFor,
    failure: Option<String>,
    received: u64,
    sent: u64,
    lost: LossCounts,
}

/// The element as the receiver of its socket's packets.
struct Receiving<'r, 'c> {
    element: &'r mut SocketElement,
    cx: &'r mut ElementContext<'c>,
}

impl SocketEvents for Receiving<'_, '_> {
    fn is_allowed(&mut self, peer: Ipv4Addr) -> bool {
        let has_route = |cx: &mut ElementContext<'_>, table: &Option<String>| {
            let Some(table) = table else { return false };
            cx.read_handler(&format!("{table}.lookup {peer}")).is_ok_and(|route| !route.starts_with('-'))
        };
        has_route(self.cx, &self.element.allow) || !has_route(self.cx, &self.element.deny)
    }

    fn receive(&mut self, bytes: &[u8], length: usize) {
        let Self { element, cx } = self;
        let mut packet = cx.services.pool.of_length(bytes.len(), element.headroom);
        packet.bytes_mut().copy_from_slice(bytes);
        let missing = u32::try_from(length.saturating_sub(bytes.len())).unwrap_or(u32::MAX);
        packet.annotation_mut(EXTRA_LENGTH).copy_from_slice(&missing.to_ne_bytes());
        if element.has_time {
            packet.set_time(cx.services.now());
        }
        element.state.received += 1;
        if element.is_ip && !crate::headers::find_ip(&mut packet, crate::devices::RAW_IP) {
            cx.services.pool.discard(packet);
        } else {
            cx.emit_or_discard(0, packet);
        }
    }

    fn tell(&mut self, news: &str) {
        if self.element.is_verbose {
            write_line(self.cx, news);
        }
    }
}

fn write_line(cx: &mut ElementContext<'_>, line: &str) {
    let text = format!("{}: {line}\n", cx.read_own_name());
    cx.services.system.write_text(TextOutput::Error, &text);
}

impl SocketElement {
    /// Sends the packets that wait, as far as there is room. Returns their number.
    fn send(&mut self, cx: &mut ElementContext<'_>) -> usize {
        let state = &mut self.state;
        let Some(socket) = &mut state.socket else {
            return state.waiting.drain(..).map(|packet| cx.services.pool.discard(packet)).count();
        };
        let mut count = 0;
        while let Some(packet) = state.waiting.pop_front() {
            let to = packet.annotation(DST_IP).first_chunk::<4>().copied().unwrap_or_default();
            match socket.send(packet.bytes(), Ipv4Addr::from(to)) {
                SocketSend::Sent => state.sent += 1,
                SocketSend::Lost(reason) => state.lost.add(reason),
                SocketSend::Full => {
                    state.waiting.push_front(packet);
                    let now = cx.services.coarse_now();
                    cx.set_timer(Timestamp(now.0.saturating_add(RETRY_AFTER.0)), 0);
                    break;
                }
            }
            cx.services.pool.discard(packet);
            count += 1;
        }
        count
    }

    fn receive(&mut self, most: usize, cx: &mut ElementContext<'_>) -> bool {
        let Some(mut socket) = self.state.socket.take() else { return false };
        match socket.receive(most, &mut Receiving { element: self, cx }) {
            Ok(SocketState::End) => {
                cx.stop_watching();
                self.state.socket = Some(socket);
                false
            }
            Ok(state) => {
                self.state.socket = Some(socket);
                state == SocketState::More
            }
            Err(reason) => {
                cx.stop_watching();
                write_line(cx, &reason);
                self.state.failure = Some(reason);
                false
            }
        }
    }

    /// Checks that the tables of ALLOW and DENY have routes.
    fn check_tables(&self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        for table in [&self.allow, &self.deny].into_iter().flatten() {
            let lookup = cx.read_handler(&format!("{table}.lookup {}", Ipv4Addr::UNSPECIFIED));
            lookup.map_err(|_| format!("{table} is not an IPRouteTable"))?;
        }
        Ok(())
    }
}

fn pulls(cx: &ElementContext<'_>) -> bool {
    cx.ports().inputs_pull.first() == Some(&true)
}

impl Element for SocketElement {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.check_tables(cx)?;
        self.state.socket = Some(cx.services.system.open_socket(&self.options)?);
        if pulls(cx) {
            self.state.waits_for = cx.wait_for_packets(0);
        }
        cx.add_task(true);
        if !cx.ports().outputs_push.is_empty() {
            cx.watch_devices();
        }
        Ok(())
    }

    fn rights(&self) -> Option<String> {
        self.needs.clone()
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let most = most_packets(most, SENT_MAX);
        let before = self.state.received;
        let mut again = !cx.ports().outputs_push.is_empty() && self.receive(most, cx);
        let mut work = usize::try_from(self.state.received - before).unwrap_or(most);
        if pulls(cx) {
            let room = most.saturating_sub(self.state.waiting.len());
            let pulled = cx.pull_each(0, room, |_, packet| self.state.waiting.push_back(packet));
            work += self.send(cx);
            // A timer goes on with the packets that wait.
            let has_room = self.state.waiting.is_empty();
            again |= has_room && (pulled == room || cx.is_active(&self.state.waits_for));
        } else {
            work += self.send(cx);
        }
        TaskRun { work, again }
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.schedule();
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        let state = &mut self.state;
        while let (Some(socket), Some(packet)) = (&mut state.socket, state.waiting.pop_front()) {
            let to = packet.annotation(DST_IP).first_chunk::<4>().copied().unwrap_or_default();
            match socket.send(packet.bytes(), Ipv4Addr::from(to)) {
                SocketSend::Sent => state.sent += 1,
                SocketSend::Full => {
                    // What waits comes behind the rest of this packet.
                    for packet in std::iter::once(packet).chain(state.waiting.drain(..)) {
                        state.lost.add("there was no room in the socket at the end");
                        services.pool.discard(packet);
                    }
                    break;
                }
                SocketSend::Lost(reason) => state.lost.add(reason),
            }
            services.pool.discard(packet);
        }
        state.waiting.drain(..).for_each(|packet| services.pool.discard(packet));
        state.socket = None;
        state.failure.take().map_or(Ok(()), Err)
    }

    handlers! {
        "received": counter "the number of received packets", read |this, _, _| Ok(this.state.received.to_string());
        "sent": counter "the number of sent packets", read |this, _, _| Ok(this.state.sent.to_string());
        "drops": counter "the number of packets that could not be sent",
            read |this, _, _| Ok(this.state.lost.total().to_string());
        "drop_details": "the lost packets by reason", read |this, _, _| this.state.lost.details();
    }
}

impl EmittingElement for SocketElement {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if self.state.waiting.len() >= WAITING_MAX {
            self.state.lost.add(TOO_MANY);
            return cx.services.pool.discard(packet);
        }
        self.state.waiting.push_back(packet);
        if self.state.waiting.len() == 1 {
            self.send(cx);
        }
    }
}
