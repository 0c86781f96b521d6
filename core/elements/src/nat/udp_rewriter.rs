//! `UDPRewriter`: rewrites addresses and ports, for TCP and UDP alike.

use super::form::RewriterForm;
use super::mapping::MappingTimeouts;
use super::rewriter::{GUARANTEE_DEFAULT, RewriterArguments, build, seconds};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "UDPRewriter",
    ports: "1-/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
rewrites the addresses and ports of UDP packets

UDPRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TIMEOUT, STREAMING_TIMEOUT, GUARANTEE, REAP_INTERVAL, \
MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])

UDPRewriter rewrites packets as IPRewriter does; its manual describes INPUTSPEC. It rewrites TCP and DCCP packets too, \
with one table for all protocols and without a look at the state of connections.

Other packets and fragments other than the first are discarded, except at an input with pass. A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires \
first. If all are guaranteed, the packet is discarded.

Arguments:
  TIMEOUT           the timeout. Default 5 minutes. UDP_TIMEOUT is another name.
  STREAMING_TIMEOUT the timeout of flows with at least three packets, and packets in both directions. Default TIMEOUT. \
UDP_STREAMING_TIMEOUT is another name.
  GUARANTEE         the time for which a mapping cannot be removed for another one after each packet. Default 5 s. UDP_GUARANTEE is another name.
  REAP_INTERVAL     mappings that have expired are removed every REAP_INTERVAL. Default 15 minutes; 0 for never.
  MAPPING_CAPACITY  the most mappings, default 1048576 and at most 16777216; or the name of a rewriter whose table is \
used. CAPACITY is another name.
  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
  REPLY_ANNO        an annotation of one byte: replies get the value of the packet that began the mapping

Handlers:
  table             r   the mappings, as udp_table of IPRewriter; mappings is another name
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
        let mut read = |name, default| args.keyword(name).or(default);
        let timeout = read("UDP_TIMEOUT", seconds(300));
        let timeout = read("TIMEOUT", timeout);
        let streaming = read("UDP_STREAMING_TIMEOUT", timeout);
        let streaming = read("STREAMING_TIMEOUT", streaming);
        let guarantee = read("UDP_GUARANTEE", GUARANTEE_DEFAULT);
        let guarantee = read("GUARANTEE", guarantee);
        let timeouts = MappingTimeouts { streaming, ..MappingTimeouts::plain(timeout, guarantee) };
        let arguments = RewriterArguments::read(&mut args, true);
        build(cx, args, arguments, RewriterForm::Ports, timeouts)
    },
};
