// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// hog: makes objects for each packet and each tick, and keeps the last ones. The others are garbage, which the language's own
// collector frees while the module runs. A load for experiments.

@external("weir", "param_int")
declare function param_int(index: u32): i64;

@external("weir", "emit")
declare function emit(stream: u32, row: usize, len: u32): i32;

@external("weir", "message")
declare function message(destination: usize, room: u32): i32;

@external("weir", "reply")
declare function reply(call: u64, bytes: usize, len: u32): i32;

/** An object that refers to an earlier one, so that the collector has references to follow. */
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

/** The request of the service `make`. */
@unmanaged
class Wish {
  objects: u32;
  first: u32;
  places: u32;
}

/** The most objects of one call. */
const OBJECTS_MAX: u32 = 1000000;

const totals = changetype<Totals>(heap.alloc(offsetof<Totals>()));
let live = new StaticArray<Thing | null>(0);
let next: i32 = 0;
const wish = changetype<Wish>(heap.alloc(offsetof<Wish>()));
/** The objects that were made for callers. */
const theirs = new Array<Thing | null>();

function make(wanted: u64): void {
  const size = <i32>param_int(2);
  for (let i: u64 = 0; i < wanted; i++) {
    const place = live[next];
    // The object that was in this slot is garbage now, but not the one that it refers to.
    if (place) place.before = null;
    const last = live[next == 0 ? live.length - 1 : next - 1];
    live[next] = new Thing(last, size);
    next = next + 1 < live.length ? next + 1 : 0;
    totals.made++;
  }
}

/** Makes objects for a caller, and keeps each in the slot of an earlier one. */
function makeForOthers(wanted: u32, first: u32, places: u32): void {
  const size = <i32>param_int(2);
  for (let i: u32 = 0; i < wanted; i++) {
    theirs[<i32>(first + <u32>(totals.made % places))] = new Thing(null, size);
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

export function weir_serve(call: u64, service: u32, len: u32): void {
  memory.fill(changetype<usize>(wish), 0, offsetof<Wish>());
  message(changetype<usize>(wish), offsetof<Wish>());
  const live = <u32>param_int(3);
  const first = min<u32>(wish.first, live - 1);
  if (wish.objects == 0) __collect();
  else makeForOthers(min<u32>(wish.objects, OBJECTS_MAX), first, max<u32>(min<u32>(wish.places, live - first), 1));
  reply(call, 0, 0);
}

export function weir_lost(cause: i32): void {
  totals.lost++;
}

export function weir_stop(now: u64): void {
  emit(0, changetype<usize>(totals), offsetof<Totals>());
}

// weir resets it after a lost call.
export { __stack_pointer };
