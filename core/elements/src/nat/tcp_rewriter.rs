//! `TCPRewriter`: rewrites addresses, ports and sequence numbers of TCP.

use super::form::RewriterForm;
use super::ip_rewriter::read_tcp_timeouts;
use super::mapping::MappingTimeouts;
use super::rewriter::{GUARANTEE_DEFAULT, RewriterArguments, build, seconds};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "TCPRewriter",
    ports: "1-/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
rewrites the addresses, ports and sequence numbers of TCP packets

TCPRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TCP_TIMEOUT, TCP_DONE_TIMEOUT, TCP_NODATA_TIMEOUT, TCP_GUARANTEE, \
REAP_INTERVAL, MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])

TCPRewriter rewrites TCP packets as IPRewriter does; its manual describes INPUTSPEC. Where an FTPPortMapper changes the \
length of a stream, TCPRewriter changes sequence numbers, acknowledgement numbers, and selective acknowledgements.

Other packets and fragments other than the first are discarded, except at an input with pass. A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires \
first. If all are guaranteed, the packet is discarded.

Arguments:
  TCP_TIMEOUT       the timeout of connections with data in both directions. Default 24 hours. TIMEOUT is another name.
  TCP_DONE_TIMEOUT  the timeout of connections that have ended, by FIN or RST. Default 4 minutes.
  TCP_NODATA_TIMEOUT
                    the timeout of connections without data in one direction. Default 5 minutes.
  TCP_GUARANTEE     the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
  REAP_INTERVAL     mappings that have expired are removed every REAP_INTERVAL. Default 15 minutes; 0 for never.
  MAPPING_CAPACITY  the most mappings, default 1048576 and at most 16777216; or the name of a rewriter whose table is \
used. CAPACITY is another name.
  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
  REPLY_ANNO        an annotation of one byte: replies get the value of the packet that began the mapping

Handlers:
  table             r   the mappings, as tcp_table of IPRewriter; mappings is another name
  lookup            r   SADDR SPORT DADDR DPORT: the new addresses and ports of a flow, in the same form
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
        let arguments = RewriterArguments::read(&mut args, true);
        build(cx, args, arguments, RewriterForm::Tcp, timeouts)
    },
};
