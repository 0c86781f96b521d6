//! The check of a header behind the IPv4 header: what CheckICMPHeader, CheckTCPHeader and CheckUDPHeader share.

use super::bad_packets::{BadPackets, bad_packets};
use std::marker::PhantomData;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Element, GraphPacket, RoutingElement, Services,
};

/// A header that an element checks.
pub trait TransportHeader: 'static {
    /// The name of the protocol.
    const PROTOCOL: &'static str;
    /// The reasons for which a packet is wrong.
    const REASONS: &'static [&'static str];

    /// Checks a packet. Fails with the index of a reason.
    fn check(packet: &GraphPacket) -> Result<(), usize>;
}

/// Makes the manual of a class: its summary, its name, and the text about the check.
macro_rules! check_manual {
    ($summary:literal, $name:literal, $text:literal) => {
        concat!(
            $summary,
            "\n\n",
            $name,
            "([keywords VERBOSE, DETAILS])\n\n",
            $text,
            " Others go to output 1, or are discarded without one. The message about the first of them comes at the end of \
the run.\n\nArguments:\n",
            "  VERBOSE  true: writes a message about each wrong packet. Default false.\n",
            "  DETAILS  has no effect: the counts by reason are always there\n\nHandlers:\n",
            "  drops         r  the number of wrong packets\n",
            "  drop_details  r  their number for each reason"
        )
    };
}
pub(super) use check_manual;

struct TransportCheck<H> {
    bad: BadPackets,
    header: PhantomData<H>,
}

/// Makes an element from its arguments.
pub fn build<H: TransportHeader>(cx: &mut BuildContext<'_>) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let is_verbose = args.flag("VERBOSE");
    let _: Option<bool> = args.keyword("DETAILS").optional();
    args.end()?;
    let bad = BadPackets::new(cx.name(), H::PROTOCOL, H::REASONS, is_verbose);
    Ok(BuiltElement::routing(TransportCheck::<H> { bad, header: PhantomData }))
}

impl<H: TransportHeader> Element for TransportCheck<H> {
    bad_packets!();
}

impl<H: TransportHeader> RoutingElement for TransportCheck<H> {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match H::check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}
