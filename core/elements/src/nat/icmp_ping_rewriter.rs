//! `ICMPPingRewriter`: rewrites ICMP echo messages.

use super::form::RewriterForm;
use super::manual::{common_handlers, full_table, reply_argument, table_arguments};
use super::mapping::MappingTimeouts;
use super::rewriter::{GUARANTEE_DEFAULT, RewriterArguments, build, seconds};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPPingRewriter",
    ports: "1-/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: concat!("\
rewrites the addresses and identifiers of ICMP echo messages

ICMPPingRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TIMEOUT, GUARANTEE, REAP_INTERVAL, MAPPING_CAPACITY, DST_ANNO, \
REPLY_ANNO])

ICMPPingRewriter rewrites echo requests as IPRewriter rewrites packets with ports; its manual describes INPUTSPEC. The \
identifier of a request takes the place of the source port. Echo replies to rewritten requests get the original \
addresses and identifier. Replies without a mapping, other packets, and fragments other than the first are discarded, \
except at an input with pass. ", full_table!(), "

Arguments:
  TIMEOUT           the timeout of a mapping. Default 5 minutes.
  GUARANTEE         the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
", table_arguments!(), "  DST_ANNO          true: the annotation DST_IP becomes the new destination. Default true.
", reply_argument!(), "
Handlers:
  table             r   the mappings, a line for each direction: addresses and identifier, the new ones, and the rest as \
tcp_table of IPRewriter; mappings is another name
", common_handlers!()),
    build: |cx| {
        let mut args = cx.arguments();
        let timeout = args.keyword("TIMEOUT").or(seconds(300));
        let guarantee = args.keyword("GUARANTEE").or(GUARANTEE_DEFAULT);
        let arguments = RewriterArguments::read(&mut args, true);
        build(cx, args, arguments, RewriterForm::Ping, MappingTimeouts::plain(timeout, guarantee))
    },
};
