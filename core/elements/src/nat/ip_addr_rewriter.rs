//! `IPAddrRewriter`: rewrites source addresses.

use super::form::RewriterForm;
use super::mapping::MappingTimeouts;
use super::rewriter::{GUARANTEE_DEFAULT, RewriterArguments, build, seconds};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPAddrRewriter",
    ports: "1-/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
rewrites the addresses of IP packets, an inner address for an outer one

IPAddrRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TIMEOUT, GUARANTEE, REAP_INTERVAL, MAPPING_CAPACITY, REPLY_ANNO])

IPAddrRewriter gives each source address a new one (basic NAT), for all protocols. Packets to the new address are \
replies: they get the original address as their destination, and as their annotation DST_IP. Checksums of IP, TCP and \
UDP follow. All fragments are rewritten.

INPUTSPECs are those of IPRewriter, but a pattern has no ports:

  pattern SADDR - FOUTPUT ROUTPUT
                    SADDR can be a range L-H or a prefix ADDR/LENGTH, of which a random address is chosen that has no \
mapping; with a `#` behind it, the next one. Without a free address the packet is discarded.

A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires \
first. If all are guaranteed, the packet is discarded.

Arguments:
  TIMEOUT           the timeout of a mapping. Default 2 hours.
  GUARANTEE         the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
  REAP_INTERVAL     mappings that have expired are removed every REAP_INTERVAL. Default 15 minutes; 0 for never.
  MAPPING_CAPACITY  the most mappings, default 1048576 and at most 16777216; or the name of a rewriter whose table is \
used. CAPACITY is another name.
  REPLY_ANNO        an annotation of one byte: replies get the value of the packet that began the mapping

Handlers:
  table             r   the mappings, a line for each direction: the address, the new address, and the rest as tcp_table \
of IPRewriter; mappings is another name
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
        let timeout = args.keyword("TIMEOUT").or(seconds(60 * 120));
        let guarantee = args.keyword("GUARANTEE").or(GUARANTEE_DEFAULT);
        let arguments = RewriterArguments::read(&mut args, false);
        build(cx, args, arguments, RewriterForm::Address, MappingTimeouts::plain(timeout, guarantee))
    },
};
