import { api } from "../api";
import { shown } from "../model/text";
import { bytes, nanos, percent, si, whole } from "../model/units";
import type { ModuleStatus, SessionRates, SessionStatus } from "../snapshot";
import { mayChange } from "../store";
import { refusal } from "./act";
import { ask } from "./dialog";
import { Table } from "./table";
import { Foreign, Key, State } from "./text";

const TIERS: Record<string, string> = {
  proved: "The bound is within the limits, so nothing is checked at run time.",
  supervised: "The bound exceeds a limit; the actual use is checked between packets.",
  metered: "The work of every call is metered, and a call that exceeds its limit is aborted.",
  unmetered: "Not metered, by a special right; it runs in a process of its own.",
};

/** The modules of a session, and those that have ended, with their faults. */
export function Modules({ session, rates }: { session: SessionStatus; rates: SessionRates | undefined }) {
  const ended = session.ended ?? [];
  const mayUnload = mayChange(session);
  if (session.modules.length + ended.length === 0) {
    return <section aria-labelledby="modules"><h2 id="modules">Modules</h2><p class="soft">No module is loaded. <code>weir load {shown(session.name)} MODULE</code> loads one.</p></section>;
  }
  return (
    <section aria-labelledby="modules">
      <h2 id="modules">Modules</h2>
      <Table label="Modules" class="tight">
        <thead><tr>
          <th scope="col">Module</th><th scope="col">State</th><th scope="col">Tier</th><th scope="col">Bound</th><th scope="col">Back end</th>
          <th scope="col" class="n">Packets/s</th><th scope="col" class="n">Time/packet</th><th scope="col" class="n">CPU</th><th scope="col" class="n">Memory</th>
          <th scope="col" class="n">Records/s</th><th scope="col" class="n">Lost records</th><th scope="col" class="n">Faults</th><th scope="col" class="n">Strikes</th>
          {mayUnload && <th scope="col"><span class="hidden">Unload</span></th>}
        </tr></thead>
        <tbody>
          {session.modules.map((module, at) => <ModuleRow key={module.name} session={session.name} module={module} rates={rates?.modules[at]} mayUnload={mayUnload} />)}
          {ended.map((module) => <ModuleRow key={`ended ${module.name}`} session={session.name} module={module} rates={undefined} mayUnload={mayUnload} hasEnded />)}
        </tbody>
      </Table>
      {[...session.modules, ...ended].map((module) => <Fault module={module} />)}
      {session.modules.map((module) => <Details module={module} />)}
    </section>
  );
}

type Rates = SessionRates["modules"][number] | undefined;

function ModuleRow({ session, module, rates, mayUnload, hasEnded }: { session: string; module: ModuleStatus; rates: Rates; mayUnload: boolean; hasEnded?: boolean }) {
  const warn = (count: number) => <td class={count > 0 ? "n bad" : "n"}>{count > 0 ? "▲ " : ""}{whole(count)}</td>;
  return (
    <tr>
      <th scope="row"><Foreign text={module.name} max={48} /> <span class="soft"><Foreign text={module.module} max={48} /></span></th>
      <td><State text={module.state} isGood={module.state === "running"} /></td>
      <td><span title={Object.hasOwn(TIERS, module.tier) ? TIERS[module.tier] : undefined}><Foreign text={module.tier} /></span></td>
      <td>{module.bound ? <Foreign text={module.bound} max={60} /> : <span class="soft">–</span>}</td>
      <td><Foreign text={module.back_end ?? ""} max={30} /></td>
      <td class="n">{si(rates?.packets)}</td>
      <td class="n">{nanos(rates?.per_packet === null || rates?.per_packet === undefined ? null : Math.round(rates.per_packet))}</td>
      <td class="n">{percent(rates?.used)}</td>
      <td class="n">{bytes(module.memory)}</td>
      <td class="n">{si(rates?.records)}</td>
      {warn(module.records_lost)}{warn(module.faults)}{warn(module.strikes)}
      {mayUnload && <td>{hasEnded ? null : <button type="button" class="small" aria-label={`Unload ${shown(module.name)}`} onClick={() => askUnload(session, module.name)}>Unload …</button>}</td>}
    </tr>
  );
}

/** The message of the last fault; it names the line of the source where the module has such lines. */
function Fault({ module }: { module: ModuleStatus }) {
  if (module.last_fault === null || module.last_fault === undefined) return null;
  return <p class="fault"><span class="bad" aria-hidden="true">▲</span> Last fault of <strong><Foreign text={module.name} max={48} /></strong>: <code><Foreign text={module.last_fault} max={240} /></code></p>;
}

function Details({ module }: { module: ModuleStatus }) {
  const keys = module.compiled_by ?? [];
  const found = Object.entries(module.findings ?? {}).filter(([, count]) => count > 0);
  if (keys.length === 0 && !module.isolation && found.length === 0) return null;
  return (
    <p class="soft"><Foreign text={module.name} max={48} />:
      {module.isolation && <> in a process of its own, <Foreign text={module.isolation} max={80} />;</>}
      {keys.length > 0 && <> compiled by {keys.slice(0, 8).map((key) => <Key text={key} />)};</>}
      {found.length > 0 && <> findings: {found.map(([severity, count]) => `${whole(count)} ${shown(severity)}`).join(", ")}</>}
    </p>
  );
}

function askUnload(session: string, module: string): void {
  ask({
    title: `Unload the module ${shown(module)}?`,
    body: <p>It stops, and gets no packets any more. Its records stay. Loading it again begins with an empty state.</p>,
    verb: "Unload module",
    act: () => refusal(api.request({ unload: { session, module } })),
  });
}
