//! `IPRewriter`: rewrites addresses and ports of TCP and UDP.

use super::form::RewriterForm;
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
    manual: "\
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

Other packets and fragments other than the first are discarded, except at an input with pass. A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires \
first. If all are guaranteed, the packet is discarded.

Sequence numbers of TCP follow the changes of an FTPPortMapper.

Arguments:
  TCP_TIMEOUT       the timeout of connections with data in both directions. Default 24 hours. TIMEOUT is another name.
  TCP_DONE_TIMEOUT  the timeout of connections that have ended, by FIN or RST. Default 4 minutes.
  TCP_NODATA_TIMEOUT
                    the timeout of connections without data in one direction. Default 5 minutes.
  TCP_GUARANTEE     the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
  UDP_TIMEOUT       the timeout of UDP. Default 5 minutes.
  UDP_STREAMING_TIMEOUT
                    the timeout of UDP flows with at least three packets, and packets in both directions. Default \
UDP_TIMEOUT.
  UDP_GUARANTEE     as TCP_GUARANTEE
  REAP_INTERVAL     mappings that have expired are removed every REAP_INTERVAL. Default 15 minutes; 0 for never.
  MAPPING_CAPACITY  the most mappings, default 1048576 and at most 16777216; or the name of a rewriter whose table is \
used. CAPACITY is another name.
  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
  REPLY_ANNO        an annotation of one byte: replies get the value of the packet that began the mapping

Handlers:
  tcp_table         r   the mappings of TCP, a line for each direction: the flow, the new flow, both outputs with a star \
at that of the direction, the input, and the seconds until the mapping expires; tcp_mappings is another name
  udp_table         r   the mappings of UDP; udp_mappings is another name
  tcp_lookup        r   SADDR SPORT DADDR DPORT: the new addresses and ports of a TCP flow, in the same form
  table_size        r   the number of mappings of this rewriter; nmappings is another name
  mapping_failures  r   the number of packets that got no mapping, because no port or address was free or the table was full
  patterns          r   the INPUTSPECs, with the numbers of their mappings
  patternN          rw  the INPUTSPEC of input N. Writing it removes the mappings of the input.
  size              r   the number of mappings in the table, which rewriters can share
  capacity          rw  the most mappings in the table
  drops             r   the number of packets that were discarded because they are not of this rewriter, or by drop
  clear             w   removes all mappings of the table",
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
