//! Elements that copy packets, or choose an output without a look at their bytes.

mod bypass;
mod check_paint;
mod hash_switch;
mod hub;
mod input_switch;
mod null;
mod paint;
mod paint_tee;
mod random_switch;
mod round_robin_switch;
mod stride_switch;
mod switch;
mod tee;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &null::NULL,
    &null::PUSH_NULL,
    &null::PULL_NULL,
    &paint::CLASS,
    &paint_tee::TEE,
    &paint_tee::SWITCH,
    &round_robin_switch::CLASS,
    &switch::CLASS,
    &tee::TEE,
    &tee::PULL_TEE,
    &hub::CLASS,
    &bypass::CLASS,
    &check_paint::CLASS,
    &input_switch::CLASS,
    &random_switch::CLASS,
    &hash_switch::CLASS,
    &stride_switch::CLASS,
];
