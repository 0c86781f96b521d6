//! `TCPRewriter`: rewrites addresses, ports and sequence numbers of TCP.

use super::form::RewriterForm;
use super::ip_rewriter::read_tcp_timeouts;
use super::manual::{common_handlers, full_table, reply_argument, table_arguments, tcp_arguments};
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
    manual: concat!("\
rewrites the addresses, ports and sequence numbers of TCP packets

TCPRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TCP_TIMEOUT, TCP_DONE_TIMEOUT, TCP_NODATA_TIMEOUT, TCP_GUARANTEE, \
REAP_INTERVAL, MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])

TCPRewriter rewrites TCP packets as IPRewriter does; its manual describes INPUTSPEC. Where an FTPPortMapper changes the \
length of a stream, TCPRewriter changes sequence numbers, acknowledgement numbers, and selective acknowledgements.

Other packets and fragments other than the first are discarded, except at an input with pass. ", full_table!(), "

Arguments:
", tcp_arguments!(), table_arguments!(), "  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
", reply_argument!(), "
Handlers:
  table             r   the mappings, as tcp_table of IPRewriter; mappings is another name
  lookup            r   SADDR SPORT DADDR DPORT: the new addresses and ports of a flow, in the same form
", common_handlers!()),
    build: |cx| {
        let mut args = cx.arguments();
        let mut timeouts = MappingTimeouts::plain(seconds(300), GUARANTEE_DEFAULT);
        read_tcp_timeouts(&mut args, &mut timeouts);
        let arguments = RewriterArguments::read(&mut args, true);
        build(cx, args, arguments, RewriterForm::Tcp, timeouts)
    },
};
