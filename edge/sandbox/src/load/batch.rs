//! The function that the loader adds to process a batch: `weir_run(descriptors: i32, mask: i64) -> i64`. The mask is
//! not 0.
//!
//! If no function of the module calls the packet function, the loader inlines the packet function into the loop: a call
//! for each packet would cost several nanoseconds for saving registers, and the compiler itself inlines only small
//! functions.

use crate::load::meter::{ALLOWANCE_MAX, FuelMeter, MeteredBody, Scratch};
use wasm_encoder::{BlockType, MemArg, MemArgTarget, ValType};
use weir_bounds::Linear;

/// The index of the first parameter, the address of the batch's descriptors.
const DESCRIPTORS: u32 = 0;
/// The index of the second parameter, the mask of the remaining packets.
const MASK: u32 = 1;
/// The index of the first local.
pub(crate) const LOCALS: u32 = 2;

/// Offset of `cap_len`, the number of captured bytes, in a descriptor.
const CAP_LEN: u64 = 12;

/// Unit of [`Linear::per_kib`], as a power of two.
const KIB_SHIFT: i64 = 10;

/// Indices in the rewritten module that the loop uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLayout {
    /// The module's packet or batch function.
    pub(crate) entry: u32,
    /// The global with the mask of remaining packets.
    pub(crate) rest: u32,
    /// The global with the mask of packets to drop.
    pub(crate) drops: u32,
}

/// The allowances that the loop over a batch sets, and the charges that it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopCharges {
    pub(crate) meter: FuelMeter,
    /// The allowance of each packet, by its length. The constant part is at most [`ALLOWANCE_MAX`].
    pub(crate) packet: Linear,
    /// The factor of the packet allowance's constant part, for a batch of the module's own batch function.
    pub(crate) packets: u64,
    /// Fuel that the loop charges for the entry of the packet function, if the function does not charge that itself.
    pub(crate) charged: Option<u64>,
    /// True if the packet function makes no other charges.
    pub(crate) has_only_entry_charge: bool,
}

impl LoopCharges {
    /// Returns the allowance of a packet of length 0, less the charge for the entry.
    fn constant(&self) -> i64 {
        self.packet.constant.saturating_sub(self.charged.unwrap_or(0)).cast_signed()
    }

    /// Returns the allowance for each 1024 bytes of a packet, so limited that the product with a 32-bit length does not
    /// overflow.
    fn per_kib(&self) -> i64 {
        self.packet.per_kib.min(1 << 30).cast_signed()
    }

    /// Returns true if the loop must set allowances. That is not so only if the packet function makes no charge but
    /// that of its entry, which the loop makes, and no call can be suspended. (A slice must also end after many short
    /// packets.)
    fn is_needed(&self) -> bool {
        self.charged.is_none() || !self.has_only_entry_charge || self.meter.asks_host()
    }

    /// Returns the locals of a function that sets allowances and makes no charges itself.
    fn locals(&self) -> Vec<(u32, ValType)> {
        if self.meter.asks_host() { Scratch::TYPES.to_vec() } else { Vec::new() }
    }

    /// Writes code that takes the address of a packet's descriptor from the stack, and leaves the allowance for the
    /// packet's length there.
    fn by_length(&self, body: &mut MeteredBody) {
        let field = MemArg { offset: CAP_LEN, align: 2, target: MemArgTarget::Memory(0), ordering: None };
        let mut code = body.code.instructions();
        code.i64_load32_u(field).i64_const(self.per_kib()).i64_mul().i64_const(KIB_SHIFT).i64_shr_u();
    }
}

/// Writes code that leaves on the stack the address of the descriptor of the mask's first packet.
pub(crate) fn descriptor(body: &mut MeteredBody) {
    let shift = i32::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(7);
    let mut code = body.code.instructions();
    code.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
    code.i32_const(shift).i32_shl().i32_add();
}

/// Writes code that removes the first packet from the mask, and leaves the remaining mask on the stack.
fn next(body: &mut MeteredBody) {
    body.code.instructions().local_get(MASK).i64_const(1).i64_sub().local_get(MASK).i64_and().local_tee(MASK);
}

impl BatchLayout {
    /// Builds a batch function that calls the packet function for each packet of the mask, in order, and returns the
    /// mask of packets to drop.
    pub(crate) fn packets(self, checked: Option<&LoopCharges>) -> MeteredBody {
        let locals = checked.map(LoopCharges::locals).unwrap_or_default();
        let mut body = MeteredBody::new(locals, Scratch::after(LOCALS));
        self.begin(&mut body, checked);
        descriptor(&mut body);
        body.code.instructions().call(self.entry);
        self.end(&mut body, checked);
        body
    }

    /// Writes the part of the loop before the packet's code. [`descriptor`] then writes code for the address of the
    /// packet's descriptor.
    pub(crate) fn begin(self, body: &mut MeteredBody, checked: Option<&LoopCharges>) {
        if let Some(checked) = checked.filter(|checked| body.keeps_fuel && checked.meter.asks_host()) {
            // At this time the global has the rest of the slice.
            checked.meter.load(body);
        }
        let mut code = body.code.instructions();
        code.i64_const(0).global_set(self.drops);
        code.local_get(MASK).global_set(self.rest);
        code.loop_(BlockType::Empty);
        let Some(checked) = checked.filter(|checked| checked.is_needed()) else { return };
        body.code.instructions().i64_const(checked.constant());
        if checked.per_kib() > 0 {
            descriptor(body);
            checked.by_length(body);
            body.code.instructions().i64_add();
        }
        checked.meter.set_allowance(body, checked.charged.unwrap_or(0));
    }

    /// Writes the part of the loop after the packet's code, which has left the verdict on the stack.
    pub(crate) fn end(self, body: &mut MeteredBody, checked: Option<&LoopCharges>) {
        if let Some(checked) = checked {
            // The poll comes before the packet counts as done, so that a timeout loses the packet that took the time.
            if checked.meter.polls {
                body.poll();
            }
            if checked.is_needed() {
                checked.meter.report_excess(body);
            }
        }
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty);
        // The lowest bit of the mask is the current packet.
        code.global_get(self.drops).i64_const(0).local_get(MASK).i64_sub().local_get(MASK).i64_and().i64_or();
        code.global_set(self.drops).end();
        next(body);
        let mut code = body.code.instructions();
        code.global_set(self.rest);
        code.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
        if let Some(checked) = checked.filter(|checked| body.keeps_fuel && checked.meter.asks_host()) {
            checked.meter.store(body);
        }
        body.code.instructions().global_get(self.drops).end();
    }

    /// Builds a batch function that sets the allowance of the module's own batch function, and calls that function.
    pub(crate) fn batch(self, checked: &LoopCharges) -> MeteredBody {
        const WHOLE_MASK: u32 = LOCALS;
        const SUM: u32 = LOCALS + 1;
        let locals = [vec![(2, ValType::I64)], checked.locals()].concat();
        let mut body = MeteredBody::new(locals, Scratch::after(LOCALS + 2));
        let constant =
            checked.packet.constant.saturating_mul(checked.packets).min(ALLOWANCE_MAX).cast_signed();
        body.code.instructions().i64_const(constant).local_set(SUM);
        if checked.per_kib() > 0 {
            body.code.instructions().local_get(MASK).local_set(WHOLE_MASK).loop_(BlockType::Empty);
            body.code.instructions().local_get(SUM);
            descriptor(&mut body);
            checked.by_length(&mut body);
            body.code.instructions().i64_add().local_set(SUM);
            next(&mut body);
            body.code.instructions().i64_eqz().i32_eqz().br_if(0).end();
            body.code.instructions().local_get(WHOLE_MASK).local_set(MASK);
        }
        body.code.instructions().local_get(SUM);
        checked.meter.set_allowance(&mut body, 0);
        body.code.instructions().local_get(DESCRIPTORS).local_get(MASK).call(self.entry);
        checked.meter.report_excess(&mut body);
        body.code.instructions().end();
        body
    }
}
