//! `IPAddrRewriter`: rewrites source addresses.

use super::form::RewriterForm;
use super::manual::{common_handlers, full_table, reply_argument, table_arguments};
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
    manual: concat!("\
rewrites the addresses of IP packets, an inner address for an outer one

IPAddrRewriter(INPUTSPEC1, ..., INPUTSPECn, [keywords TIMEOUT, GUARANTEE, REAP_INTERVAL, MAPPING_CAPACITY, REPLY_ANNO])

IPAddrRewriter gives each source address a new one (basic NAT), for all protocols. Packets to the new address are \
replies: they get the original address as their destination, and as their annotation DST_IP. Checksums of IP, TCP and \
UDP follow. All fragments are rewritten.

INPUTSPECs are those of IPRewriter, but a pattern has no ports:

  pattern SADDR - FOUTPUT ROUTPUT
                    SADDR can be a range L-H or a prefix ADDR/LENGTH, of which a random address is chosen that has no \
mapping; with a `#` behind it, the next one. Without a free address the packet is discarded.

", full_table!(), "

Arguments:
  TIMEOUT           the timeout of a mapping. Default 2 hours.
  GUARANTEE         the time for which a mapping cannot be removed for another one after each packet. Default 5 s.
", table_arguments!(), reply_argument!(), "
Handlers:
  table             r   the mappings, a line for each direction: the address, the new address, and the rest as tcp_table \
of IPRewriter; mappings is another name
", common_handlers!()),
    build: |cx| {
        let mut args = cx.arguments();
        let timeout = args.keyword("TIMEOUT").or(seconds(60 * 120));
        let guarantee = args.keyword("GUARANTEE").or(GUARANTEE_DEFAULT);
        let arguments = RewriterArguments::read(&mut args, false);
        build(cx, args, arguments, RewriterForm::Address, MappingTimeouts::plain(timeout, guarantee))
    },
};
