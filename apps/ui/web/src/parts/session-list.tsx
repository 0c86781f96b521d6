// The list of sessions. A row is rendered once; later values reach its texts and bars through signals, and only where
// they differ. So 200 sessions, once a second, cost little.

import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { Component } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { cut, plural, shown } from "../model/text";
import { firstDirection, order, type Measure, type SessionRow, type SortKey } from "../model/sessions";
import { sessionHref } from "../routes";
import { rows } from "../store";
import { Bar } from "./bar";
import { SortHead, Table } from "./table";

const sort = signal<{ key: SortKey; direction: 1 | -1 }>({ key: "name", direction: 1 });
const filter = signal({ text: "", onlyLosing: false });

/** The rows that are made; a filter finds the others. */
const ROWS_MAX = 1_000;

/** The order of names; a new value only if the order differs. */
const names = signal<string[]>([]);
const losing = computed(() => [...rows.value.values()].filter((row) => row.losses.value > 0).length);

type MeasureSignals = { text: Signal<string>; promised: Signal<string>; fill: Signal<number>; mark: Signal<number> };

interface RowSignals {
  state: Signal<string>;
  stateClass: Signal<string>;
  class: Signal<string>;
  cpu: MeasureSignals;
  memory: MeasureSignals;
  bandwidth: MeasureSignals;
  packets: Signal<string>;
  records: Signal<string>;
  losses: Signal<string>;
  cause: Signal<string>;
}

const cells = new Map<string, RowSignals>();

function measureSignals(measure: Measure): MeasureSignals {
  return { text: signal(measure.text), promised: signal(promised(measure)), fill: signal(measure.fill), mark: signal(measure.mark) };
}

function promised(measure: Measure): string {
  return measure.promised === "" ? "" : ` of ${measure.promised}`;
}

function setMeasure(signals: MeasureSignals, measure: Measure): void {
  signals.text.value = measure.text;
  signals.promised.value = promised(measure);
  signals.fill.value = measure.fill;
  signals.mark.value = measure.mark;
}

function texts(row: SessionRow) {
  const isLosing = row.losses.value > 0;
  return {
    state: `${row.isRunning ? "" : "▲ "}${cut(row.state, 60)}`,
    stateClass: row.isRunning ? "state-cell soft" : "state-cell bad",
    class: isLosing ? "losing" : "",
    packets: row.packets.text,
    records: row.records.text,
    losses: isLosing ? `▲ ${row.losses.text}` : row.losses.text,
    cause: row.cause === "" ? "" : ` ${row.cause}`,
  };
}

function rowSignals(row: SessionRow): RowSignals {
  const it = texts(row);
  return {
    state: signal(it.state), stateClass: signal(it.stateClass), class: signal(it.class), packets: signal(it.packets),
    records: signal(it.records), losses: signal(it.losses), cause: signal(it.cause),
    cpu: measureSignals(row.cpu), memory: measureSignals(row.memory), bandwidth: measureSignals(row.bandwidth),
  };
}

function setRow(signals: RowSignals, row: SessionRow): void {
  const it = texts(row);
  for (const key of Object.keys(it) as (keyof typeof it)[]) signals[key].value = it[key];
  setMeasure(signals.cpu, row.cpu);
  setMeasure(signals.memory, row.memory);
  setMeasure(signals.bandwidth, row.bandwidth);
}

/** Rows on the screen change each second; the others in turn, each within so many seconds. */
const HIDDEN_EVERY = 10;
const visible = new Set<string>();
let turn = 0;

const observer = new IntersectionObserver((entries) => {
  batch(() => {
    for (const { target, isIntersecting } of entries) {
      const name = (target as HTMLElement).dataset["name"] ?? "";
      if (!isIntersecting) visible.delete(name);
      else {
        visible.add(name);
        const [signals, row] = [cells.get(name), rows.peek().get(name)];
        if (signals && row) setRow(signals, row);
      }
    }
  });
});

/** Takes over the rows of a snapshot. */
function update(next: ReadonlyMap<string, SessionRow>): void {
  for (const name of cells.keys()) if (!next.has(name)) cells.delete(name);
  turn = (turn + 1) % HIDDEN_EVERY;
  let n = 0;
  for (const [name, row] of next) {
    const signals = cells.get(name);
    if (!signals) cells.set(name, rowSignals(row));
    else if (visible.has(name) || n % HIDDEN_EVERY === turn) setRow(signals, row);
    n += 1;
  }
  const ordered = order(next.values(), sort.value, filter.value).slice(0, ROWS_MAX);
  const before = names.peek();
  if (ordered.length !== before.length || ordered.some((name, at) => name !== before[at])) names.value = ordered;
}

function MeasureCell({ of, class: name }: { of: MeasureSignals; class?: string }) {
  return <td class={`measure ${name ?? ""}`}><span>{of.text}<span class="soft">{of.promised}</span></span><Bar fill={of.fill} mark={of.mark} /></td>;
}

class Row extends Component<{ name: string }> {
  private element: HTMLTableRowElement | null = null;

  override componentDidMount() {
    if (this.element) observer.observe(this.element);
  }

  override componentWillUnmount() {
    if (this.element) observer.unobserve(this.element);
    visible.delete(this.props.name);
  }

  /** The signals of a row stay the same objects as long as the row is there. */
  override shouldComponentUpdate(next: { name: string }) {
    return next.name !== this.props.name;
  }

  override render({ name }: { name: string }) {
    const it = cells.get(name);
    if (!it) return null;
    const text = shown(name);
    return (
      <tr class={it.class} data-name={name} ref={(element) => { if (element) this.element = element; }}>
        <th scope="row"><a href={sessionHref(name)} title={text}>{cut(text, 48)}</a></th>
        <MeasureCell of={it.cpu} />
        <td class="loss"><span class="n">{it.losses}</span><span class="cause">{it.cause}</span></td>
        <td class="n w1">{it.packets}</td>
        <MeasureCell of={it.memory} class="w2" />
        <MeasureCell of={it.bandwidth} class="w3" />
        <td class="n w2">{it.records}</td>
        <td class={it.stateClass}>{it.state}</td>
      </tr>
    );
  }
}

function setSort(key: SortKey): void {
  const { key: before, direction } = sort.value;
  sort.value = { key, direction: before === key ? (direction === 1 ? -1 : 1) : firstDirection(key) };
}

export function SessionList() {
  // The first rows must be there before the first rendering.
  useMemo(() => batch(() => update(rows.peek())), []);
  useEffect(() => effect(() => {
    const [next] = [rows.value, sort.value, filter.value];
    batch(() => update(next));
  }), []);
  const head = { sort: sort.value, onSort: setSort };
  const { text, onlyLosing } = filter.value;
  return (
    <section aria-labelledby="sessions">
      <div class="title"><h2 id="sessions">Sessions</h2>
        <div class="side">
          <button type="button" class={losing.value > 0 ? "chip bad" : "chip"} aria-pressed={onlyLosing} onClick={() => { filter.value = { text, onlyLosing: !onlyLosing }; }}>
            {losing.value > 0 ? "▲ " : ""}{losing.value === 1 ? "1 loses packets" : `${losing.value} lose packets`}
          </button>
          <label><span class="hidden">Filter sessions by name or state</span>
            <input type="search" placeholder="Name or state" value={text} onInput={(event) => { filter.value = { text: event.currentTarget.value, onlyLosing }; }} />
          </label>
        </div>
      </div>
      <Table label="Sessions" class="sessions">
        <thead><tr>
          <SortHead id="name" title="Session" {...head} />
          <SortHead id="cpu" title="CPU" hint="Processor time in % of a core, received of promised" {...head} />
          <SortHead id="losses" title="Lost" hint="Packets lost per second, with the cause" {...head} />
          <SortHead id="packets" title="Packets/s" isNumber class="w1" {...head} />
          <SortHead id="memory" title="Memory" class="w2" hint="Used of reserved" {...head} />
          <SortHead id="bandwidth" title="Bandwidth" class="w3" hint="Sent of reserved" {...head} />
          <SortHead id="records" title="Records/s" isNumber class="w2" {...head} />
          <SortHead id="state" title="State" class="state-cell" {...head} />
        </tr></thead>
        <tbody>{names.value.map((name) => <Row key={name} name={name} />)}</tbody>
      </Table>
      <p class="soft" role="status">
        {names.value.length < rows.value.size ? `${names.value.length} of ${plural(rows.value.size, "session")} shown` : ""}
        {rows.value.size === 0 ? "There are no sessions that you may see. A session is made with: weir session create NAME" : ""}
      </p>
    </section>
  );
}
