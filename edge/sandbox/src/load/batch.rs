//! The function that takes a batch: `weir_run(descriptors: i32, mask: i64) -> i64`. The mask is not 0.
//!
//! Where nothing in the module calls the packet function, its code stands in the loop, and the whole takes its place: the compiler would only put
//! a small function there, and a call for each packet costs several ns, because of the registers that it saves.

use crate::load::meter::{ALLOWANCE_MAX, FuelMeter, MeteredBody, Scratch};
use wasm_encoder::{BlockType, MemArg, MemArgTarget, ValType};
use weir_bounds::Linear;

/// Parameters, and where locals begin.
const DESCRIPTORS: u32 = 0;
const MASK: u32 = 1;
pub(crate) const LOCALS: u32 = 2;

/// Where a descriptor says how many bytes of the packet are there.
const CAP_LEN: u64 = 12;

/// Bytes that [`Linear::per_kib`] is for, as a power of two.
const KIB_SHIFT: i64 = 10;

/// Where things are in the rewritten module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLayout {
    /// The module's own function.
    pub(crate) entry: u32,
    /// The global with the mask of packets still to do.
    pub(crate) rest: u32,
    /// The global with the mask of packets to drop.
    pub(crate) drops: u32,
}

/// What packets are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    pub(crate) meter: FuelMeter,
    /// What each may use, without its length at most [`ALLOWANCE_MAX`].
    pub(crate) packet: Linear,
    /// For how many packets a batch that is taken whole is given that.
    pub(crate) packets: u64,
    /// What is taken from that for the entry of the packet function, if it does not do that itself.
    pub(crate) charged: Option<u64>,
    /// Whether nothing else is charged in it.
    pub(crate) is_silent: bool,
}

impl Loop {
    /// What a packet without a byte is given.
    fn constant(&self) -> i64 {
        self.packet.constant.saturating_sub(self.charged.unwrap_or(0)).cast_signed()
    }

    /// What each 1024 bytes add. The product with a length of 32 bits does not overflow.
    fn per_kib(&self) -> i64 {
        self.packet.per_kib.min(1 << 30).cast_signed()
    }

    /// Also where nothing is charged but the entry: a slice ends after many short packets too.
    fn is_needed(&self) -> bool {
        self.charged.is_none() || !self.is_silent || self.meter.asks()
    }

    /// Locals of a function that gives allowances and charges nothing itself.
    fn locals(&self) -> Vec<(u32, ValType)> {
        if self.meter.asks() { Scratch::TYPES.to_vec() } else { Vec::new() }
    }

    /// Leaves on the stack what the descriptor whose address is there says that its packet adds.
    fn by_length(&self, body: &mut MeteredBody) {
        let field = MemArg { offset: CAP_LEN, align: 2, target: MemArgTarget::Memory(0), ordering: None };
        let mut code = body.code.instructions();
        code.i64_load32_u(field).i64_const(self.per_kib()).i64_mul().i64_const(KIB_SHIFT).i64_shr_u();
    }
}

/// Leaves on the stack the address of the descriptor of the mask's first packet.
pub(crate) fn descriptor(body: &mut MeteredBody) {
    let shift = i32::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(7);
    let mut code = body.code.instructions();
    code.local_get(DESCRIPTORS).local_get(MASK).i64_ctz().i32_wrap_i64();
    code.i32_const(shift).i32_shl().i32_add();
}

/// Takes the first packet off the mask and leaves what remains on the stack.
fn next(body: &mut MeteredBody) {
    body.code.instructions().local_get(MASK).i64_const(1).i64_sub().local_get(MASK).i64_and().local_tee(MASK);
}

impl BatchLayout {
    /// Calls the packet function for each bit of the mask, in order; returns the mask of the packets that it wants dropped.
    pub(crate) fn packets(self, checked: Option<&Loop>) -> MeteredBody {
        let locals = checked.map(Loop::locals).unwrap_or_default();
        let mut body = MeteredBody::new(locals, Scratch::after(LOCALS));
        self.begin(&mut body, checked);
        descriptor(&mut body);
        body.code.instructions().call(self.entry);
        self.end(&mut body, checked);
        body
    }

    /// The loop, up to where the packet is processed whose descriptor [`descriptor`] gives.
    pub(crate) fn begin(self, body: &mut MeteredBody, checked: Option<&Loop>) {
        if let Some(checked) = checked.filter(|checked| body.keeps_fuel && checked.meter.asks()) {
            // What is left of the slice.
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
        checked.meter.allow(body, checked.charged.unwrap_or(0));
    }

    /// The rest of the loop, after the packet's verdict is on the stack.
    pub(crate) fn end(self, body: &mut MeteredBody, checked: Option<&Loop>) {
        if let Some(checked) = checked {
            // Before the packet counts as done: the one that took the time is the one that is lost.
            if checked.meter.polls {
                body.poll();
            }
            if checked.is_needed() {
                checked.meter.note(body);
            }
        }
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty);
        // The lowest bit of the mask is the packet that was just seen.
        code.global_get(self.drops).i64_const(0).local_get(MASK).i64_sub().local_get(MASK).i64_and().i64_or();
        code.global_set(self.drops).end();
        next(body);
        let mut code = body.code.instructions();
        code.global_set(self.rest);
        code.local_get(MASK).i64_eqz().i32_eqz().br_if(0).end();
        if let Some(checked) = checked.filter(|checked| body.keeps_fuel && checked.meter.asks()) {
            checked.meter.store(body);
        }
        body.code.instructions().global_get(self.drops).end();
    }

    /// Gives the module's own batch function what its packets may use, and calls it.
    pub(crate) fn batch(self, checked: &Loop) -> MeteredBody {
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
        checked.meter.allow(&mut body, 0);
        body.code.instructions().local_get(DESCRIPTORS).local_get(MASK).call(self.entry);
        checked.meter.note(&mut body);
        body.code.instructions().end();
        body
    }
}
