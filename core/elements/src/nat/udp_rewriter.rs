//! `UDPRewriter`: rewrites addresses and ports, for TCP and UDP alike.

use super::form::RewriterForm;
use super::manual::{common_handlers, full_table, reply_argument, table_arguments};
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
    manual: concat!("\
rewrites the addresses and ports of UDP packets

UDPRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TIMEOUT, STREAMING_TIMEOUT, GUARANTEE, REAP_INTERVAL, \
MAPPING_CAPACITY, DST_ANNO, REPLY_ANNO])

UDPRewriter rewrites packets as IPRewriter does; its manual describes INPUTSPEC. It rewrites TCP and DCCP packets too, \
with one table for all protocols and without a look at the state of connections.

Other packets and fragments other than the first are discarded, except at an input with pass. ", full_table!(), "

Arguments:
  TIMEOUT           the timeout. Default 5 minutes. UDP_TIMEOUT is another name.
  STREAMING_TIMEOUT the timeout of flows with at least three packets, and packets in both directions. Default TIMEOUT. \
UDP_STREAMING_TIMEOUT is another name.
  GUARANTEE         the time for which a mapping cannot be removed for another one after each packet. Default 5 s. UDP_GUARANTEE is another name.
", table_arguments!(), "  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
", reply_argument!(), "
Handlers:
  table             r   the mappings, as udp_table of IPRewriter; mappings is another name
", common_handlers!()),
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
