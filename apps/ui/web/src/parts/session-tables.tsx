// Virtual CPUs, channels and outputs of a session.

import { causeOf } from "../model/causes";
import { shown } from "../model/text";
import { bits, nanos, percent, perSecond, si, whole } from "../model/units";
import type { Counts, SessionRates, SessionStatus } from "../snapshot";
import { Bar, PartBar } from "./bar";
import { Foreign } from "./text";
import { Table } from "./table";

interface Props {
  session: SessionStatus;
  rates: SessionRates | undefined;
}

export function VirtualCpus({ session, rates }: Props) {
  return (
    <section aria-labelledby="cpus">
      <h2 id="cpus">Virtual CPUs</h2>
      <Table label="Virtual CPUs">
        <thead><tr><th scope="col">Name</th><th scope="col">Used</th><th scope="col">Promised</th><th scope="col" class="n">Spare</th><th scope="col" class="n">Missed</th><th scope="col" class="n">Overruns</th></tr></thead>
        <tbody>{session.cpu.map((cpu, at) => {
          const its = rates?.processors[at];
          const promised = cpu.period_ns > 0 ? cpu.slice_ns / cpu.period_ns : 0;
          const used = its?.used ?? 0;
          const length = Math.max(used, promised, 0.0001);
          const isMissing = (its?.missed ?? 0) > 0;
          return (
            <tr class={isMissing ? "losing" : ""}>
              <th scope="row"><Foreign text={cpu.name} max={48} /> <span class="soft">core {cpu.core}</span></th>
              <td class="measure"><span>{percent(its?.used)}</span><Bar fill={used / length} mark={promised > 0 ? promised / length : -1} /></td>
              <td>{cpu.period_ns > 0 ? `${nanos(cpu.slice_ns)} in ${nanos(cpu.period_ns)}` : "no reservation"}<span class="soft">{cpu.borrow ? " + spare" : ""}</span></td>
              <td class="n">{percent(its?.spare)}</td>
              <td class={isMissing ? "n bad" : "n"} title="Periods in which it had work and did not get its slice">{isMissing ? `▲ ${perSecond(its?.missed)}, ` : ""}{whole(cpu.periods_missed)}</td>
              <td class="n" title="Runs longer than the slice; the next slice is shortened">{whole(cpu.overruns)}</td>
            </tr>
          );
        })}</tbody>
      </Table>
    </section>
  );
}

export function Channels({ session, rates }: Props) {
  if (session.channels.length === 0) return null;
  return (
    <section aria-labelledby="channels">
      <h2 id="channels">Channels</h2>
      <Table label="Channels">
        <thead><tr><th scope="col">Name</th><th scope="col">From</th><th scope="col">Waiting</th><th scope="col" class="n">Packets/s</th><th scope="col" class="n">Received</th><th scope="col">Lost</th></tr></thead>
        <tbody>{session.channels.map((channel, at) => {
          const its = rates?.channels[at];
          return (
            <tr class={(its?.drops ?? 0) > 0 ? "losing" : ""}>
              <th scope="row"><Foreign text={channel.name} max={48} /></th>
              <td><Foreign text={channel.interface} max={24} />{channel.filter !== "" && <> <code><Foreign text={channel.filter} max={48} /></code></>}{channel.view ? <> <span class="soft">view <Foreign text={channel.view} max={48} /></span></> : null}</td>
              <td class="measure"><span>{si(channel.waiting)}<span class="soft"> of {si(channel.queue)}</span></span><PartBar part={channel.waiting} whole={channel.queue} /></td>
              <td class="n">{si(its?.packets)}</td>
              <td class="n">{bits(its?.bits)}</td>
              <Drops rate={its?.drops ?? null} drops={channel.drops} />
            </tr>
          );
        })}</tbody>
      </Table>
      {session.channels.map((channel) => <Preprocessed name={channel.name} counts={channel.findings ?? {}} />)}
    </section>
  );
}

export function Outputs({ session, rates }: Props) {
  const outputs = session.outputs ?? [];
  if (outputs.length === 0) return null;
  const orNone = (rate: number) => (rate === 0 ? "none" : bits(rate));
  return (
    <section aria-labelledby="outputs">
      <h2 id="outputs">Output channels</h2>
      <Table label="Output channels">
        <thead><tr><th scope="col">Name</th><th scope="col">Sent</th><th scope="col">Promised</th><th scope="col" class="n">Cap</th><th scope="col" class="n">Weight</th><th scope="col">Waiting</th><th scope="col">Lost</th></tr></thead>
        <tbody>{outputs.map((output, at) => {
          const its = rates?.outputs[at];
          const length = Math.max(its?.bits ?? 0, output.reserved_bits, 1);
          return (
            <tr class={(its?.drops ?? 0) > 0 ? "losing" : ""}>
              <th scope="row"><Foreign text={output.name} max={48} /> <span class="soft">on <Foreign text={output.link} max={24} />{output.tap ? <> for <Foreign text={output.tap} max={24} /></> : null}</span></th>
              <td class="measure"><span>{bits(its?.bits)}</span><Bar fill={(its?.bits ?? 0) / length} mark={output.reserved_bits > 0 ? output.reserved_bits / length : -1} /></td>
              <td>{orNone(output.reserved_bits)}</td>
              <td class="n">{orNone(output.cap_bits)}</td>
              <td class="n">{output.weight}</td>
              <td class="measure"><span>{si(output.waiting)}<span class="soft"> of {si(output.queue)}</span></span><PartBar part={output.waiting} whole={output.queue} /></td>
              <Drops rate={its?.drops ?? null} drops={output.drops} />
            </tr>
          );
        })}</tbody>
      </Table>
    </section>
  );
}

/** Losses per second, and all losses by cause, the largest first. */
function Drops({ rate, drops }: { rate: number | null; drops: Counts }) {
  const list = Object.entries(drops).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]).slice(0, 8);
  if (list.length === 0) return <td class="loss">0</td>;
  const isLosing = (rate ?? 0) > 0;
  return (
    <td class="loss"><span class={isLosing ? "bad" : ""}>{isLosing ? `▲ ${perSecond(rate)}` : "0"}</span>{" "}
      <span class="cause soft">{list.map(([cause, count]) => `${si(count)} ${shown(causeOf(cause).short)}`).join(", ")}</span></td>
  );
}

function Preprocessed({ name, counts }: { name: string; counts: Counts }) {
  const list = Object.entries(counts).filter(([, count]) => count > 0).slice(0, 16);
  if (list.length === 0) return null;
  return <p class="soft">Preprocessing of <Foreign text={name} max={48} />: {list.map(([what, count]) => `${whole(count)} ${shown(what)}`).join(", ")}</p>;
}
