// Cores, links and interfaces of a node: promised and received.

import { shown } from "../model/text";
import { bits, percent, perSecond, si, whole } from "../model/units";
import type { Counts } from "../snapshot";
import { rates, snapshot } from "../store";
import { Bar, PartBar } from "./bar";
import { Foreign, State } from "./text";
import { Table } from "./table";

export function Cores() {
  const cores = snapshot.value?.cores ?? [];
  // A node sends its cores to operators only, because their load reveals what other sessions do.
  if (cores.length === 0) return null;
  return (
    <section aria-labelledby="cores">
      <h2 id="cores">Cores</h2>
      <Table label="Cores">
        <thead><tr><th scope="col">Core</th><th scope="col">Used</th><th scope="col">Promised</th><th scope="col" class="n">Overhead</th><th scope="col" class="n">Stolen</th></tr></thead>
        <tbody>{cores.map((core, at) => {
          const its = rates.value?.cores[at];
          const [promised, most] = [core.reserved_ppm / 1e6, core.reservable_ppm / 1e6];
          const stolen = its?.stolen ?? 0;
          return (
            <tr>
              <th scope="row">{core.core}</th>
              <td class="measure"><span>{percent(its?.busy)}</span><Bar fill={Math.min(1, its?.busy ?? 0)} mark={promised} /></td>
              <td class="measure"><span>{percent(promised)}<span class="soft"> of {percent(most)}</span></span><PartBar part={promised} whole={most} /></td>
              <td class="n">{percent(its?.overhead)}</td>
              <td class={stolen > 0.05 ? "n bad" : "n"}>{stolen > 0.05 ? "▲ " : ""}{percent(its?.stolen)}</td>
            </tr>
          );
        })}</tbody>
      </Table>
    </section>
  );
}

export function Links() {
  const links = snapshot.value?.links ?? [];
  if (links.length === 0) return null;
  return (
    <section aria-labelledby="links">
      <h2 id="links">Links</h2>
      <Table label="Links">
        <thead><tr><th scope="col">Link</th><th scope="col">Sent</th><th scope="col">Promised</th><th scope="col" class="n">Packets/s</th><th scope="col">Lost</th></tr></thead>
        <tbody>{links.map((link, at) => {
          const its = rates.value?.links[at];
          return (
            <tr class={(its?.drops ?? 0) > 0 ? "losing" : ""}>
              <th scope="row"><Foreign text={link.name} max={24} /> <State text={link.state} isGood={link.state === "up"} /></th>
              <td class="measure"><span>{bits(its?.bits)}<span class="soft"> of {bits(link.rate_bits)}</span></span><Bar fill={Math.min(1, (its?.bits ?? 0) / Math.max(1, link.rate_bits))} mark={link.reserved_bits / Math.max(1, link.rate_bits)} /></td>
              <td class="measure"><span>{bits(link.reserved_bits)}<span class="soft"> of {bits(link.reservable_bits)}</span></span><PartBar part={link.reserved_bits} whole={link.reservable_bits} /></td>
              <td class="n">{si(its?.packets)}</td>
              <Lost rate={its?.drops ?? null} count={link.lost} cause="the interface refused the packet" />
            </tr>
          );
        })}</tbody>
      </Table>
    </section>
  );
}

export function Interfaces() {
  const interfaces = snapshot.value?.interfaces ?? [];
  if (interfaces.length === 0) return null;
  return (
    <section aria-labelledby="interfaces">
      <h2 id="interfaces">Interfaces</h2>
      <Table label="Interfaces">
        <thead><tr><th scope="col">Interface</th><th scope="col" class="n">Packets/s</th><th scope="col" class="n">Received</th><th scope="col">Lost</th><th scope="col" class="n">No channel</th></tr></thead>
        <tbody>{interfaces.map((it, at) => {
          const its = rates.value?.interfaces[at];
          return (
            <tr class={(its?.missed ?? 0) > 0 ? "losing" : ""}>
              <th scope="row"><Foreign text={it.name} max={24} /> <State text={it.state} isGood={it.state === "up"} /></th>
              <td class="n">{si(its?.packets)}</td>
              <td class="n">{bits(its?.bits)}</td>
              <Lost rate={its?.missed ?? null} count={it.missed} cause="the kernel had no memory for the packet" />
              <td class="n" title="Packets that no channel selects">{perSecond(its?.unmatched)}</td>
            </tr>
          );
        })}</tbody>
      </Table>
      {interfaces.map((it) => <Fragments name={it.name} counts={it.fragments ?? {}} />)}
    </section>
  );
}

/** Losses per second and in all, with the cause in words. */
export function Lost({ rate, count, cause }: { rate: number | null; count: number; cause: string }) {
  const isLosing = (rate ?? 0) > 0;
  if (count === 0) return <td class="loss">0</td>;
  return (
    <td class="loss">
      <span class={isLosing ? "bad" : ""}>{isLosing ? `▲ ${perSecond(rate)}` : "0"}</span>
      <span class="cause"> {isLosing ? cause : ""} <span class="soft">{whole(count)} in all</span></span>
    </td>
  );
}

function Fragments({ name, counts }: { name: string; counts: Counts }) {
  const list = Object.entries(counts).filter(([, count]) => count > 0).slice(0, 16);
  if (list.length === 0) return null;
  return <p class="soft">Fragments on <Foreign text={name} max={24} />: {list.map(([outcome, count]) => `${whole(count)} ${shown(outcome)}`).join(", ")}</p>;
}
