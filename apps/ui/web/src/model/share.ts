// The form that changes a session's share: its fields, the request of the differences, and the request that undoes it.

import type { ChangeRequest, OutputChange, ProcessorChange } from "../api";
import type { OutputStatus, SessionStatus, VirtualCpuStatus } from "../snapshot";
import { quantity } from "./units";

export interface ShareForm {
  memory: string;
  cpu: CpuFields[];
  outputs: OutputFields[];
}

export interface CpuFields {
  name: string;
  core: number;
  period: string;
  slice: string;
  borrow: boolean;
  /** Empty if the node does not state it. */
  weight: string;
}

export interface OutputFields {
  /** The part that the form does not change. Counters are not part of it, so that forms can be compared. */
  status: Pick<OutputStatus, "name" | "link" | "tap" | "queue" | "filter" | "period_ns">;
  reserve: string;
  cap: string;
  weight: string;
}

const PERIOD_NS = { min: 100_000, max: 10_000_000_000 };
const WEIGHT_MAX = 65_535;

/** Returns a text that no other session of the node has, also not a later one with the same name. */
export function identityOf(session: SessionStatus): string {
  return `${session.name}#${session.id ?? ""}`;
}

/** Returns the form of a session's present share, with exact amounts. */
export function formOf(session: SessionStatus): ShareForm {
  return {
    memory: exact(session.memory_reserved, BYTES),
    cpu: session.cpu.map((cpu) => ({
      name: cpu.name,
      core: cpu.core,
      period: cpu.period_ns > 0 ? exact(cpu.period_ns, NANOS) : "",
      slice: cpu.period_ns > 0 ? exact(cpu.slice_ns, NANOS) : "",
      borrow: cpu.borrow,
      weight: cpu.weight === undefined ? "" : String(cpu.weight),
    })),
    outputs: (session.outputs ?? []).map((output) => {
      const { name, link, tap, queue, filter, period_ns } = output;
      return {
        status: { name, link, tap, queue, ...(filter === undefined ? {} : { filter }), ...(period_ns === undefined ? {} : { period_ns }) },
        reserve: output.reserved_bits > 0 ? exact(output.reserved_bits, BITS) : "",
        cap: output.cap_bits > 0 ? exact(output.cap_bits, BITS) : "",
        weight: String(output.weight),
      };
    }),
  };
}

const NANOS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const BYTES: [number, string][] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const BITS: [number, string][] = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];

/** Returns an amount in the largest unit that divides it, so that nothing is rounded. */
export function exact(amount: number, units: [number, string][]): string {
  const [scale, unit] = units.find(([scale]) => amount >= scale && amount % scale === 0) ?? [1, units.at(-1)?.[1] ?? ""];
  return `${amount / scale} ${unit}`;
}

/** The faults of a form, by the name of the field. */
export type Faults = Record<string, string>;

/** Returns the faults that need no node to be found. */
export function faultsOf(form: ShareForm): Faults {
  const faults: Faults = {};
  const check = (field: string, text: string, isRight: boolean, wanted: string) => {
    if (!isRight) faults[field] = text.trim() === "" ? `Give ${wanted}.` : `This is not ${wanted}.`;
  };
  check("memory", form.memory, (quantity(form.memory, "bytes") ?? 0) > 0, "an amount of memory, such as 64 MiB");
  for (const cpu of form.cpu) {
    const [period, slice] = [quantity(cpu.period, "time"), quantity(cpu.slice, "time")];
    const isReserved = cpu.period.trim() !== "" || cpu.slice.trim() !== "";
    const isPeriod = period !== null && period >= PERIOD_NS.min && period <= PERIOD_NS.max;
    check(`period ${cpu.name}`, cpu.period, !isReserved || isPeriod, "a time from 100 us to 10 s, such as 10 ms");
    const isSlice = slice !== null && slice > 0 && (period === null || slice <= period);
    check(`slice ${cpu.name}`, cpu.slice, !isReserved || isSlice, "a time of at most the period, such as 2 ms");
    check(`weight ${cpu.name}`, cpu.weight, cpu.weight.trim() === "" || isWeight(cpu.weight, 1), `a whole number from 1 to ${WEIGHT_MAX}`);
  }
  for (const output of form.outputs) {
    const name = output.status.name;
    const [reserve, cap] = [quantity(output.reserve, "rate"), quantity(output.cap, "rate")];
    check(`reserve ${name}`, output.reserve, output.reserve.trim() === "" || reserve !== null, "a rate, such as 5 Mbit/s");
    const isCap = output.cap.trim() === "" || (cap !== null && cap >= (reserve ?? 0));
    check(`cap ${name}`, output.cap, isCap, "a rate of at least the reserve, such as 20 Mbit/s");
    check(`output weight ${name}`, output.weight, isWeight(output.weight, 0), `a whole number from 0 to ${WEIGHT_MAX}`);
  }
  return faults;
}

function isWeight(text: string, min: number): boolean {
  return /^\d{1,5}$/.test(text.trim()) && Number(text) >= min && Number(text) <= WEIGHT_MAX;
}

/** Returns the request that makes a session's share that of a form; `null` if nothing differs. */
export function changeOf(session: SessionStatus, from: ShareForm, to: ShareForm): ChangeRequest | null {
  const change: ChangeRequest = { session: session.name };
  if (to.memory.trim() !== from.memory.trim()) change.memory = to.memory.trim();
  const cpu = to.cpu.filter((fields, at) => !isSame(fields, from.cpu[at])).map(processorChange);
  if (cpu.length > 0) change.cpu = cpu;
  const outputs = to.outputs.filter((fields, at) => {
    const earlier = from.outputs[at];
    return !earlier || fields.reserve !== earlier.reserve || fields.cap !== earlier.cap || fields.weight !== earlier.weight;
  });
  if (outputs.length > 0) change.output = outputs.map(outputChange);
  return change.memory === undefined && change.cpu === undefined && change.output === undefined ? null : change;
}

function isSame(a: CpuFields, b: CpuFields | undefined): boolean {
  return b !== undefined && a.period === b.period && a.slice === b.slice && a.borrow === b.borrow && a.weight === b.weight;
}

function processorChange(fields: CpuFields): ProcessorChange {
  const change: ProcessorChange = { name: fields.name, core: fields.core, borrow: fields.borrow };
  if (fields.period.trim() !== "") change.period = fields.period.trim();
  if (fields.slice.trim() !== "") change.slice = fields.slice.trim();
  if (fields.weight.trim() !== "") change.weight = Number(fields.weight);
  return change;
}

/** An entry replaces the whole output channel, so it repeats what the form does not change. */
function outputChange({ status, reserve, cap, weight }: OutputFields): OutputChange {
  const change: OutputChange = { name: status.name, link: status.link, weight: Number(weight), queue: status.queue };
  if (reserve.trim() !== "") change.reserve = reserve.trim();
  if (reserve.trim() !== "" && status.period_ns) change.period = exact(status.period_ns, NANOS);
  if (cap.trim() !== "") change.cap = cap.trim();
  if (status.filter) change.filter = status.filter;
  if (status.tap !== null && status.tap !== undefined) change.tap = status.tap;
  return change;
}

/** Returns true if the node states all of a virtual CPU that a change would replace. */
export function statesAll(cpu: VirtualCpuStatus): boolean {
  return cpu.weight !== undefined;
}
