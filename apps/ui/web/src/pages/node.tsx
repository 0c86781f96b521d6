import { NodeFacts } from "../parts/frame";
import { NodeCharts } from "../parts/node-charts";
import { Cores, Interfaces, Links } from "../parts/node-tables";
import { Remote, Tables, Views } from "../parts/node-more";
import { Findings, Refusals } from "../parts/node-news";
import { SessionList } from "../parts/session-list";
import { Foreign, Title } from "../parts/text";
import { snapshot } from "../store";

/** The start page: what the node has, what it promised, and what goes wrong. */
export function NodePage() {
  const name = snapshot.value?.node ?? "";
  return (
    <div class="node-page">
      <Title side={<NodeFacts />}><Foreign text={name} max={60} /></Title>
      <SessionList />
      <div class="grid">
        <Cores />
        <Links />
        <Interfaces />
        <Views />
        <Tables />
        <Remote />
      </div>
      <NodeCharts />
      <div class="grid half">
        <Findings />
        <Refusals />
      </div>
    </div>
  );
}
