import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../api";
import { cut, shown } from "../model/text";
import { bits, percent } from "../model/units";
import { nodeSeries, seriesVersion, snapshot } from "../store";
import { Chart, type Line } from "./chart";
import { useRange } from "./range";
import { Foreign } from "./text";

/** The most cores, interfaces and links of which a chart is drawn. */
const CHARTS_MAX = 12;

/** The last hour of cores, interfaces and links. */
export function NodeCharts() {
  const { range, zoom, buttons } = useRange();
  const problem = useSignal<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    api.history(null, abort.signal).then(
      (history) => {
        nodeSeries.load(history);
        seriesVersion.value += 1;
      },
      (error: unknown) => {
        if (!abort.signal.aborted) problem.value = error instanceof Error ? error.message : String(error);
      },
    );
    return () => abort.abort();
  }, []);
  const now = snapshot.value;
  // The charts are made anew only if the node has other parts.
  const parts = [
    ...(now?.cores ?? []).map((core) => ["core", String(core.core)]),
    ...(now?.interfaces ?? []).map((it) => ["interface", it.name]),
    ...(now?.links ?? []).map((it) => ["link", it.name]),
  ].slice(0, CHARTS_MAX);
  const identity = JSON.stringify(parts);
  const charts = useMemo(() => parts.map(([kind = "", name = ""]) => ({ kind, name, lines: linesOf(kind, name) })), [identity]);
  if (charts.length === 0) return null;
  return (
    <section aria-labelledby="hour">
      <div class="title"><h2 id="hour">The last hour</h2><div class="side">{buttons}</div></div>
      {problem.value !== null && <p class="soft">The earlier part is missing: <Foreign text={problem.value} /></p>}
      <div class="charts">
        {charts.map(({ kind, name, lines }) => (
          <Chart key={`${kind} ${name}`} title={`${kind === "core" ? "Core" : kind === "link" ? "Link" : "Interface"} ${cut(shown(name), 40)}`} series={nodeSeries}
            lines={lines} format={kind === "core" ? percent : bits} range={range} onZoom={zoom} />
        ))}
      </div>
    </section>
  );
}

function linesOf(kind: string, name: string): Line[] {
  if (kind === "core") {
    return [
      { column: `core ${name} busy`, title: "used", colour: 1, style: "area" },
      { column: `core ${name} promised`, title: "promised", colour: 2, style: "promise" },
    ];
  }
  if (kind === "interface") return [{ column: `interface ${name} bits`, title: "received", colour: 1, style: "area" }];
  return [
    { column: `link ${name} bits`, title: "sent", colour: 1, style: "area" },
    { column: `link ${name} promised`, title: "promised", colour: 2, style: "promise" },
  ];
}
