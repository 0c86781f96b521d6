//! `RandomSample`: takes a random part of the packets.

use crate::values::BinaryFraction;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RandomSample",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::RANDOM,
    order: OrderDependence::Ordered,
    manual: "\
takes a random part of the packets

RandomSample([P, keywords SAMPLE, DROP, ACTIVE])

RandomSample sends each packet to output 0 with the probability P. Others go to output 1, or are discarded if there is none.

Arguments:
  P       the probability of output 0; also by the keyword SAMPLE
  DROP    instead: the probability of output 1
  ACTIVE  false: all packets go to output 0. Default true.

Handlers:
  sampling_prob  rw  the probability of output 0
  drop_prob      rw  the probability of output 1
  active         rw  the argument
  drops          r   the number of packets that did not go to output 0",
    build: |cx| {
        let mut args = cx.arguments();
        let given: Option<Probability> = args.either("P").checked(Probability::check_probability).optional();
        let sample = args.keyword("SAMPLE").checked(Probability::check_probability).optional();
        let drop: Option<Probability> =
            args.keyword("DROP").checked(Probability::check_probability).optional();
        let active = args.keyword("ACTIVE").or(true);
        if sample.is_some() && drop.is_some() {
            args.error("DROP", "give at most one of SAMPLE and DROP");
        }
        let sampled = drop.map(Probability::complement).or(sample).or(given);
        if sampled.is_none() {
            args.error("P", "a sampling probability is missing: give P, SAMPLE or DROP");
        }
        args.end()?;
        Ok(BuiltElement::routing(RandomSample { sampled: sampled.unwrap_or(Probability::ONE), active, drops: 0 }))
    },
};

/// The bits of a random number that are compared with the probability, as in Click.
const BITS: u32 = 28;

type Probability = BinaryFraction<BITS>;

struct RandomSample {
    sampled: Probability,
    active: bool,
    drops: u64,
}

/// Reads the value of a handler.
fn read(value: &str) -> Result<Probability, Reason> {
    let probability: Probability = crate::values::read(value)?;
    probability.check_probability().map_err(|fault| fault.to_string())?;
    Ok(probability)
}

impl Element for RandomSample {
    reconfigured_fields!(sampled, active);

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_ref::<RandomSample>() {
            self.drops = earlier.drops;
        }
    }

    handlers! {
        "sampling_prob": "the probability of output 0",
            read |this, _, _| Ok(this.sampled.to_string()),
            write |this, value, _| {
                this.sampled = read(value)?;
                Ok(String::new())
            };
        "drop_prob": "the probability of output 1",
            read |this, _, _| Ok(this.sampled.complement().to_string()),
            write |this, value, _| {
                this.sampled = read(value)?.complement();
                Ok(String::new())
            };
        "active": "false if all packets go to output 0", field active;
        "drops": counter "the number of packets that did not go to output 0",
            read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for RandomSample {
    fn route(&mut self, _: usize, _: &mut GraphPacket, services: &mut Services) -> Destination {
        if !self.active || services.random() % Probability::ONE.0 < self.sampled.0 {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::output(1)
    }
}
