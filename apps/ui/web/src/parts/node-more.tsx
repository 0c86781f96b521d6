// Views, tables and remote access of a node, where it has them.

import { bytes, perSecond, whole } from "../model/units";
import { shown } from "../model/text";
import { rates, snapshot } from "../store";
import { Table } from "./table";
import { Foreign, Key } from "./text";

/** The most rows of each of these lists. */
const ROWS_MAX = 200;

export function Views() {
  const views = snapshot.value?.views ?? [];
  if (views.length === 0) return null;
  return (
    <section aria-labelledby="views">
      <h2 id="views">Views</h2>
      <Table label="Views">
        <thead><tr><th scope="col">On</th><th scope="col">Shows</th><th scope="col">Of</th><th scope="col" class="n">Packets/s</th><th scope="col">Readers</th></tr></thead>
        <tbody>{views.slice(0, ROWS_MAX).map((view, at) => (
          <tr key={view.number}>
            <th scope="row"><Foreign text={view.interface} max={24} /></th>
            <td><code><Foreign text={view.view} max={60} /></code></td>
            <td>{view.owner === null ? "the operator" : <Key text={view.owner} />}</td>
            <td class="n">{perSecond(rates.value?.views[at])}</td>
            <td><Foreign text={view.readers.join(", ")} max={60} /></td>
          </tr>
        ))}</tbody>
      </Table>
    </section>
  );
}

export function Tables() {
  const tables = snapshot.value?.tables ?? [];
  if (tables.length === 0) return null;
  return (
    <section aria-labelledby="tables">
      <h2 id="tables">Tables</h2>
      <Table label="Tables">
        <thead><tr><th scope="col">Name</th><th scope="col">Publisher</th><th scope="col" class="n">Version</th><th scope="col" class="n">Size</th><th scope="col">Readers</th></tr></thead>
        <tbody>{tables.slice(0, ROWS_MAX).map((table) => (
          <tr key={table.name}>
            <th scope="row"><Foreign text={table.name} max={48} /></th>
            <td><Foreign text={table.publisher ?? "none"} max={48} /></td>
            <td class="n">{whole(table.version)}</td>
            <td class="n">{bytes(table.bytes)}</td>
            <td><Foreign text={table.readers.join(", ")} max={60} />{(table.problems ?? []).slice(0, 8).map((problem) => <p class="bad">▲ <Foreign text={problem} max={100} /></p>)}</td>
          </tr>
        ))}</tbody>
      </Table>
    </section>
  );
}

export function Remote() {
  const remote = snapshot.value?.remote;
  if (!remote) return null;
  const refused = Object.entries(remote.refused ?? {}).filter(([, count]) => count > 0).slice(0, 16);
  return (
    <section aria-labelledby="remote">
      <h2 id="remote">Remote access</h2>
      <p>{whole(remote.clients)} connected now, {whole(remote.connections)} connections in all.</p>
      {refused.length > 0 && <p>Refused or aborted: {refused.map(([cause, count]) => `${whole(count)} ${shown(cause)}`).join(", ")}</p>}
    </section>
  );
}
