import { NodeFacts } from "../parts/frame";
import { NodeCharts } from "../parts/node-charts";
import { Cores, Interfaces, Links } from "../parts/node-tables";
import { Findings, Refusals } from "../parts/node-news";
import { SessionList } from "../parts/session-list";
import { Title } from "../parts/text";
import { shown } from "../model/text";
import { snapshot } from "../store";

/** The start page: what the node has, what it promised, and what goes wrong. */
export function NodePage() {
  const name = snapshot.value?.node ?? "";
  return (
    <div class="node-page">
      <Title side={<NodeFacts />}>{shown(name)}</Title>
      <SessionList />
      <div class="grid">
        <Cores />
        <Links />
        <Interfaces />
      </div>
      <NodeCharts />
      <div class="grid">
        <Findings />
        <Refusals />
      </div>
    </div>
  );
}
