// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// hog: makes objects, so many for each packet and each tick, and keeps the last of them: the others are garbage, which the language's own
// collector finds while the module runs. A load for experiments, and a neighbour to be protected from.

@external("weir", "param_int")
declare function param_int(index: u32): i64;

@external("weir", "emit")
declare function emit(stream: u32, row: usize, len: u32): i32;

/** Something that refers to what was made before it, so that the collector has a way to go. */
class Thing {
  before: Thing | null;
  bytes: StaticArray<u8>;

  constructor(before: Thing | null, size: i32) {
    this.before = before;
    this.bytes = new StaticArray<u8>(size);
  }
}

/** A row of the stream `totals`. */
@unmanaged
class Totals {
  packets: u64;
  ticks: u64;
  made: u64;
  lost: u64;
}

const totals = changetype<Totals>(heap.alloc(offsetof<Totals>()));
let live = new StaticArray<Thing | null>(0);
let next: i32 = 0;

function make(wanted: u64): void {
  const size = <i32>param_int(2);
  for (let i: u64 = 0; i < wanted; i++) {
    const place = live[next];
    // What was in this place is garbage now, but for what it refers to.
    if (place) place.before = null;
    const last = live[next == 0 ? live.length - 1 : next - 1];
    live[next] = new Thing(last, size);
    next = next + 1 < live.length ? next + 1 : 0;
    totals.made++;
  }
}

export function weir_start(): i32 {
  memory.fill(changetype<usize>(totals), 0, offsetof<Totals>());
  live = new StaticArray<Thing | null>(<i32>param_int(3));
  return 0;
}

export function weir_packet(descriptor: usize): i32 {
  totals.packets++;
  make(<u64>param_int(0));
  return 0;
}

export function weir_tick(now: u64, periods: u64): void {
  totals.ticks++;
  make(<u64>param_int(1));
}

export function weir_lost(cause: i32): void {
  totals.lost++;
}

export function weir_stop(now: u64): void {
  emit(0, changetype<usize>(totals), offsetof<Totals>());
}

// weir puts it back after a call that was lost.
export { __stack_pointer };
