//! Writes the function that the loader adds to a module to process a batch: `weir_run(descriptors: i32, mask: i64) -> i64`.
//!
//! The first argument is the guest address of the batch's descriptors. The second is the mask of its packets, which is not
//! 0. The result is the mask of packets to drop.
//!
//! If no function of the module calls the packet function, the loader inlines the packet function into the loop over the
//! batch. A call for each packet would cost several nanoseconds for saving registers, and the compiler itself inlines only
//! small functions.

use crate::load::meter::{ALLOWANCE_MAX, FuelMeter, MeteredBody, Scratch};
use std::mem::offset_of;
use wasm_encoder::{BlockType, MemArg, MemArgTarget, ValType};
use weir_abi::Descriptor;
use weir_abi::stream::{TcpStreamEvent, reply};
use weir_bounds::Linear;

/// The index of the first parameter, the address of the batch's descriptors.
const DESCRIPTORS: u32 = 0;
/// The index of the second parameter, the mask of the remaining packets.
const MASK: u32 = 1;
/// The index of the first local.
pub(crate) const LOCALS: u32 = 2;

/// Offset of `cap_len`, the number of captured bytes, in a descriptor, and of `len` in an event of a TCP stream.
const CAP_LEN: u64 = 12;
const _: () = assert!(offset_of!(Descriptor, cap_len) == 12 && offset_of!(TcpStreamEvent, len) == 12);

/// The guest address of the window with the event.
const WINDOW: i32 = weir_abi::STREAMS_BASE.cast_signed();

/// The binary logarithm of the number of bytes in a KiB, the unit of [`Linear::per_kib`].
const KIB_SHIFT: i64 = 10;

/// The functions and globals that the batch function uses, by their indices in the rewritten module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLayout {
    /// The module's packet or batch function.
    pub(crate) entry_function: u32,
    /// The global with the mask of remaining packets.
    pub(crate) remaining_global: u32,
    /// The global with the mask of packets to drop.
    pub(crate) drops_global: u32,
    /// True if the entry function gets packets. In a module without such a function, the loop only gives the events of TCP
    /// streams.
    pub(crate) has_packet_function: bool,
    /// The functions for the events of TCP streams, if the module follows streams.
    pub(crate) streams: Option<StreamLayout>,
}

/// The functions for the events of TCP streams, by their indices in the rewritten module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLayout {
    /// The global with the mask of packets that may have events. The host sets it before each batch.
    pub(crate) event_mask_global: u32,
    /// The host function that writes the next event of a packet to the window, and returns an [`answer`].
    pub(crate) next_event: u32,
    /// The module's function for events.
    pub(crate) function: u32,
    /// The fuel of an event, and of each 1024 bytes of it, for the host's work.
    pub(crate) event_cost: Linear,
}

/// The locals of the loop over the events of a packet: the address of the packet's descriptor, or 0; the answer of
/// [`next_event`](StreamLayout::next_event); the module's reply to the event before; and all replies.
const PACKET: u32 = LOCALS;
const ANSWER: u32 = LOCALS + 1;
const REPLY: u32 = LOCALS + 2;
const REPLIES: u32 = LOCALS + 3;
/// The number of locals of the loop over events.
const EVENT_LOCALS: u32 = 4;

/// Answers of [`next_event`](StreamLayout::next_event).
pub(crate) mod answer {
    /// There is no event.
    pub(crate) const NONE: i32 = 0;
    /// The window has an event, and there may be more.
    pub(crate) const EVENT: i32 = 1;
    /// The window has an event, and there is none after it unless the module replies that it wants fewer.
    pub(crate) const LAST_EVENT: i32 = 2;
}

/// The allowances that the loop over a batch sets, and the charges that it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopCharges {
    pub(crate) meter: FuelMeter,
    /// The allowance of each packet, by its length. The constant part is at most [`ALLOWANCE_MAX`].
    pub(crate) packet_allowance: Linear,
    /// The allowance of each event of a TCP stream, by the length of its bytes.
    pub(crate) event_allowance: Linear,
    /// The allowance of the module's own batch function has this many times the constant part of a packet's allowance.
    pub(crate) batch_factor: u64,
    /// The fuel that the loop charges for the entry of the packet function. `None` if the function charges for its entry
    /// itself.
    pub(crate) entry_charge: Option<u64>,
    /// True if the packet function makes no other charges.
    pub(crate) has_only_entry_charge: bool,
}

impl LoopCharges {
    /// Returns the allowance of a packet of length 0, less the charge for the entry.
    fn constant(&self) -> i64 {
        self.packet_allowance.constant.saturating_sub(self.entry_charge.unwrap_or(0)).cast_signed()
    }

    /// Returns the allowance for each 1024 bytes of a packet. The value is limited, so that its product with a 32-bit length
    /// does not overflow.
    fn per_kib(&self) -> i64 {
        self.packet_allowance.per_kib.min(1 << 30).cast_signed()
    }

    /// Returns true if the loop must set allowances.
    ///
    /// It need not set them if its own charge for the entry is the only charge of the packet function, and calls cannot be
    /// suspended. With suspension, a slice must also end after many short packets.
    fn is_needed(&self) -> bool {
        self.entry_charge.is_none() || !self.has_only_entry_charge || self.meter.has_suspendable_calls()
    }

    /// Returns the locals that a function needs which sets allowances, but makes no charges itself.
    fn locals(&self) -> Vec<(u32, ValType)> {
        if self.meter.has_suspendable_calls() { Scratch::TYPES.to_vec() } else { Vec::new() }
    }

    /// Writes code that replaces the address of a packet's descriptor on the stack by the allowance for the packet's length.
    fn write_length_allowance(&self, body: &mut MeteredBody) {
        write_amount_by_length(body, self.per_kib());
    }

    /// Writes the code before the call for the event in the window: sets the event's allowance, and charges for the host's
    /// work.
    fn begin_event(&self, body: &mut MeteredBody, cost: Linear) {
        let limit = |amount: u64| amount.min(1 << 30).cast_signed();
        body.code.instructions().i64_const(self.event_allowance.constant.cast_signed());
        if self.event_allowance.per_kib > 0 {
            body.code.instructions().i32_const(WINDOW);
            write_amount_by_length(body, limit(self.event_allowance.per_kib));
            body.code.instructions().i64_add();
        }
        self.meter.set_allowance(body, 0);
        self.meter.charge(body, |body| {
            body.code.instructions().i32_const(WINDOW);
            write_amount_by_length(body, limit(cost.per_kib));
            body.code.instructions().i64_const(cost.constant.cast_signed()).i64_add();
        });
    }

    /// Writes the code after a call of the module's function in the loop.
    fn end_call(&self, body: &mut MeteredBody) {
        if self.meter.reads_poll_page {
            body.poll();
        }
        self.meter.report_excess(body);
    }
}

impl StreamLayout {
    /// Writes the loop over the events of the mask's first packet, or without `has_packet` over those of no packet. The loop
    /// leaves all replies, combined by OR, on the stack.
    fn write_events(self, body: &mut MeteredBody, charges: Option<&LoopCharges>, has_packet: bool) {
        body.code.instructions().i32_const(0).local_set(REPLY).i32_const(0).local_set(REPLIES);
        body.code.instructions().block(BlockType::Empty);
        if has_packet {
            // Most packets have no events, and cost no call of the host. The lowest bit of the mask is the current packet.
            body.code.instructions().i64_const(0).local_get(MASK).i64_sub().local_get(MASK).i64_and();
            body.code.instructions().global_get(self.event_mask_global).i64_and().i64_eqz().br_if(0);
            write_descriptor_address(body);
            body.code.instructions().local_set(PACKET);
        }
        body.code.instructions().loop_(BlockType::Empty);
        body.code.instructions().local_get(PACKET).local_get(REPLY).call(self.next_event).local_tee(ANSWER);
        body.code.instructions().i32_eqz().br_if(1);
        if let Some(charges) = charges {
            charges.begin_event(body, self.event_cost);
        }
        body.code.instructions().i32_const(WINDOW).call(self.function).local_tee(REPLY);
        body.code.instructions().local_get(REPLIES).i32_or().local_set(REPLIES);
        if let Some(charges) = charges {
            charges.end_call(body);
        }
        // After the last event, the host must only learn that the module wants fewer events.
        body.code.instructions().local_get(ANSWER).i32_const(answer::EVENT).i32_eq();
        body.code.instructions().local_get(REPLY).i32_const(reply::SKIP | reply::IGNORE).i32_and().i32_or();
        body.code.instructions().br_if(0).end().end().local_get(REPLIES);
    }
}

/// Writes code that replaces the address of a descriptor or an event on the stack by an amount of `per_kib` for each 1024
/// of its bytes.
fn write_amount_by_length(body: &mut MeteredBody, per_kib: i64) {
    let mut code = body.code.instructions();
    code.i64_load32_u(field_at(CAP_LEN)).i64_const(per_kib).i64_mul().i64_const(KIB_SHIFT).i64_shr_u();
}

/// Returns the place of a field of 4 bytes in a descriptor.
const fn field_at(offset: u64) -> MemArg {
    MemArg { offset, align: 2, target: MemArgTarget::Memory(0), ordering: None }
}

/// Writes code that leaves on the stack the address of the descriptor of the mask's first packet.
pub(crate) fn write_descriptor_address(body: &mut MeteredBody) {
    let shift = i32::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(7);
    let mut code = body.code.instructions();
    code.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
    code.i32_const(shift).i32_shl().i32_add();
}

/// Writes code that removes the first packet from the mask, and leaves the remaining mask on the stack.
fn write_next_packet(body: &mut MeteredBody) {
    body.code.instructions().local_get(MASK).i64_const(1).i64_sub().local_get(MASK).i64_and().local_tee(MASK);
}

impl BatchLayout {
    /// Builds a batch function that calls the packet function for each packet of the mask, in order, and returns the
    /// mask of packets to drop.
    pub(crate) fn packet_loop(self, charges: Option<&LoopCharges>) -> MeteredBody {
        let mut body = match self.streams {
            Some(_) => Self::body_with_events(charges),
            None => {
                let locals = charges.map(LoopCharges::locals).unwrap_or_default();
                MeteredBody::new(locals, Scratch::after(LOCALS))
            }
        };
        self.begin_loop(&mut body, charges);
        if self.has_packet_function {
            write_descriptor_address(&mut body);
            body.code.instructions().call(self.entry_function);
        } else {
            body.code.instructions().i32_const(0);
        }
        if let Some(streams) = self.streams {
            // The verdict of the packet function stays below on the stack.
            if let Some(charges) = charges {
                charges.end_call(&mut body);
            }
            streams.write_events(&mut body, charges, true);
            body.code.instructions().i32_const(reply::DROP).i32_and().i32_or();
        }
        self.end_loop(&mut body, charges);
        body
    }

    /// Begins a function with the loop over events, which charges for them.
    fn body_with_events(charges: Option<&LoopCharges>) -> MeteredBody {
        let mut locals = vec![(EVENT_LOCALS, ValType::I32)];
        if charges.is_some() {
            locals.extend(Scratch::TYPES);
        }
        MeteredBody::new(locals, Scratch::after(LOCALS + EVENT_LOCALS))
    }

    /// Builds the function that gives events of TCP streams without a packet: of streams that have timed out, or at the end. It
    /// has the type of the batch function, and the arguments have no meaning.
    pub(crate) fn event_loop(self, charges: Option<&LoopCharges>) -> MeteredBody {
        let mut body = Self::body_with_events(charges);
        body.code.instructions().i64_const(0).global_set(self.drops_global);
        body.code.instructions().i64_const(0).global_set(self.remaining_global);
        if let Some(streams) = self.streams {
            streams.write_events(&mut body, charges, false);
            body.code.instructions().drop();
        }
        body.code.instructions().i64_const(0).end();
        body
    }

    /// Writes the part of the loop before the packet's code, which begins with [`write_descriptor_address`].
    pub(crate) fn begin_loop(self, body: &mut MeteredBody, charges: Option<&LoopCharges>) {
        if let Some(charges) =
            charges.filter(|charges| body.has_fuel_local && charges.meter.has_suspendable_calls())
        {
            // Before the first packet, the global has the rest of the slice.
            charges.meter.load(body);
        }
        let mut code = body.code.instructions();
        code.i64_const(0).global_set(self.drops_global);
        code.local_get(MASK).global_set(self.remaining_global);
        code.loop_(BlockType::Empty);
        let Some(charges) = charges.filter(|charges| charges.is_needed()) else { return };
        body.code.instructions().i64_const(charges.constant());
        if charges.per_kib() > 0 {
            write_descriptor_address(body);
            charges.write_length_allowance(body);
            body.code.instructions().i64_add();
        }
        charges.meter.set_allowance(body, charges.entry_charge.unwrap_or(0));
    }

    /// Writes the part of the loop after the packet's code, which has left the verdict on the stack.
    pub(crate) fn end_loop(self, body: &mut MeteredBody, charges: Option<&LoopCharges>) {
        if let Some(charges) = charges {
            // The poll stands before the code that removes the packet from the mask. So a timeout loses the packet that took
            // the time.
            if charges.meter.reads_poll_page {
                body.poll();
            }
            if charges.is_needed() {
                charges.meter.report_excess(body);
            }
        }
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty);
        // The lowest bit of the mask is the current packet.
        code.global_get(self.drops_global)
            .i64_const(0)
            .local_get(MASK)
            .i64_sub()
            .local_get(MASK)
            .i64_and()
            .i64_or();
        code.global_set(self.drops_global).end();
        write_next_packet(body);
        let mut code = body.code.instructions();
        code.global_set(self.remaining_global);
        code.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
        if let Some(charges) =
            charges.filter(|charges| body.has_fuel_local && charges.meter.has_suspendable_calls())
        {
            charges.meter.store(body);
        }
        body.code.instructions().global_get(self.drops_global).end();
    }

    /// Builds a batch function that sets the allowance of the module's own batch function, and calls the latter.
    pub(crate) fn batch_wrapper(self, charges: &LoopCharges) -> MeteredBody {
        const WHOLE_MASK: u32 = LOCALS;
        const SUM: u32 = LOCALS + 1;
        let locals = [vec![(2, ValType::I64)], charges.locals()].concat();
        let mut body = MeteredBody::new(locals, Scratch::after(LOCALS + 2));
        let constant = charges
            .packet_allowance
            .constant
            .saturating_mul(charges.batch_factor)
            .min(ALLOWANCE_MAX)
            .cast_signed();
        body.code.instructions().i64_const(constant).local_set(SUM);
        if charges.per_kib() > 0 {
            body.code.instructions().local_get(MASK).local_set(WHOLE_MASK).loop_(BlockType::Empty);
            body.code.instructions().local_get(SUM);
            write_descriptor_address(&mut body);
            charges.write_length_allowance(&mut body);
            body.code.instructions().i64_add().local_set(SUM);
            write_next_packet(&mut body);
            body.code.instructions().i64_eqz().i32_eqz().br_if(0).end();
            body.code.instructions().local_get(WHOLE_MASK).local_set(MASK);
        }
        body.code.instructions().local_get(SUM);
        charges.meter.set_allowance(&mut body, 0);
        body.code.instructions().local_get(DESCRIPTORS).local_get(MASK).call(self.entry_function);
        charges.meter.report_excess(&mut body);
        body.code.instructions().end();
        body
    }
}
