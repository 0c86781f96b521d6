//! `IPRewriter`: rewrites addresses and ports of TCP and UDP.

use super::form::RewriterForm;
use super::manual::{common_handlers, full_table, reply_argument, table_arguments, tcp_arguments};
use super::mapping::MappingTimeouts;
use super::rewriter::{GUARANTEE_DEFAULT, RewriterArguments, build, seconds};
use weir_graph::arguments::ElementArguments;
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};
use weir_units::Nanos;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPRewriter",
    ports: "1-/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: concat!("\
rewrites the addresses and ports of TCP and UDP packets

IPRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TCP_TIMEOUT, TCP_DONE_TIMEOUT, TCP_NODATA_TIMEOUT, TCP_GUARANTEE, \
UDP_TIMEOUT, UDP_STREAMING_TIMEOUT, UDP_GUARANTEE, REAP_INTERVAL, MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])

IPRewriter translates addresses and ports (NAPT). A mapping states the new addresses and ports of a flow, its output, and \
those of its replies. A packet with a mapping is rewritten with its checksums, and goes to the output of its mapping. For \
a packet without one, the INPUTSPEC of its input decides; there is one for each input:

  drop              discards packets. discard is another name.
  pass [OUTPUT]     sends packets to OUTPUT, default 0, as they are. passthrough and nochange are other names.
  keep FOUTPUT ROUTPUT
                    makes a mapping that changes nothing: packets go to FOUTPUT, replies to ROUTPUT
  pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT
                    makes a mapping to these addresses and ports. `-` leaves a field. SPORT can be a range L-H, of \
which a port is chosen such that replies have no other mapping: the packet's own port if it is free, else a random one. \
L-H? is a random one, L-H# the next one. Without a free port the packet is discarded.
  pattern NAME FOUTPUT ROUTPUT
                    the same with a pattern of IPRewriterPatterns
  ELEMENT           has an element make the mapping, such as a RoundRobinIPMapper

Other packets and fragments other than the first are discarded, except at an input with pass. ", full_table!(), "

Sequence numbers of TCP follow the changes of an FTPPortMapper.

Arguments:
", tcp_arguments!(), "  UDP_TIMEOUT       the timeout of UDP. Default 5 minutes.
  UDP_STREAMING_TIMEOUT
                    the timeout of UDP flows with at least three packets, and packets in both directions. Default \
UDP_TIMEOUT.
  UDP_GUARANTEE     as TCP_GUARANTEE
", table_arguments!(), "  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
", reply_argument!(), "
Handlers:
  tcp_table         r   the mappings of TCP, a line for each direction: the flow, the new flow, both outputs with a star \
at that of the direction, the input, and the seconds until the mapping expires; tcp_mappings is another name
  udp_table         r   the mappings of UDP; udp_mappings is another name
  tcp_lookup        r   SADDR SPORT DADDR DPORT: the new addresses and ports of a TCP flow, in the same form
", common_handlers!()),
    build: |cx| {
        let mut args = cx.arguments();
        let mut timeouts = MappingTimeouts::plain(seconds(300), GUARANTEE_DEFAULT);
        read_tcp_timeouts(&mut args, &mut timeouts);
        timeouts.plain = args.keyword("UDP_TIMEOUT").or(timeouts.plain);
        timeouts.streaming = args.keyword("UDP_STREAMING_TIMEOUT").or(timeouts.plain);
        timeouts.guarantee = args.keyword("UDP_GUARANTEE").or(timeouts.guarantee);
        let arguments = RewriterArguments::read(&mut args, true);
        build(cx, args, arguments, RewriterForm::TcpAndUdp, timeouts)
    },
};

/// Reads the timeouts of TCP.
pub fn read_tcp_timeouts(args: &mut ElementArguments<'_, '_>, timeouts: &mut MappingTimeouts) {
    let mut read = |name, default: Nanos| -> Nanos { args.keyword(name).or(default) };
    timeouts.tcp_no_data = read("TCP_NODATA_TIMEOUT", seconds(300));
    let timeout = read("TIMEOUT", seconds(60 * 60 * 24));
    timeouts.tcp_data = read("TCP_TIMEOUT", timeout);
    timeouts.tcp_done = read("TCP_DONE_TIMEOUT", seconds(240));
    let guarantee = read("TCP_GUARANTEE", GUARANTEE_DEFAULT);
    timeouts.tcp_guarantee = read("GUARANTEE", guarantee);
}
