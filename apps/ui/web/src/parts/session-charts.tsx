import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { bits, bytes, percent, perSecond } from "../model/units";
import { followSeries, seriesVersion } from "../store";
import { Chart, type Line } from "./chart";
import { useRange } from "./range";
import { Foreign } from "./text";

const CPU: Line[] = [
  { column: "cpu", title: "received", colour: 1, style: "area" },
  { column: "cpu_promised", title: "promised", colour: 2, style: "promise" },
];
const MEMORY: Line[] = [
  { column: "memory", title: "used", colour: 1, style: "area" },
  { column: "memory_promised", title: "promised", colour: 2, style: "promise" },
];
const BANDWIDTH: Line[] = [
  { column: "bandwidth", title: "sent", colour: 1, style: "area" },
  { column: "bandwidth_promised", title: "promised", colour: 2, style: "promise" },
];
const PACKETS: Line[] = [
  { column: "packets", title: "packets", colour: 1, style: "area" },
  { column: "drops", title: "lost", colour: 4, style: "line" },
  { column: "records", title: "records", colour: 3, style: "line" },
];

/** The last hour of a session: promised and received. Only a session that `sends` has a bandwidth. */
export function SessionCharts({ name, sends }: { name: string; sends: boolean }) {
  const { range, zoom, buttons } = useRange();
  const [problem, setProblem] = useState<string | null>(null);
  const series = followSeries(name);
  useEffect(() => {
    const abort = new AbortController();
    api.history(name, abort.signal).then(
      (history) => {
        series.load(history);
        seriesVersion.value += 1;
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => abort.abort();
  }, [name]);
  const common = { series, range, onZoom: zoom };
  return (
    <section aria-labelledby="hour">
      <div class="title"><h2 id="hour">The last hour</h2><div class="side"><span class="soft zoom-hint">Drag over a chart to zoom</span>{buttons}</div></div>
      {problem !== null && <p class="soft">The earlier part is missing: <Foreign text={problem} /></p>}
      <div class="charts">
        <Chart title="CPU" lines={CPU} format={percent} {...common} />
        <Chart title="Packets and losses" lines={PACKETS} format={perSecond} {...common} />
        <Chart title="Memory" lines={MEMORY} format={bytes} isBinary {...common} />
        {sends && <Chart title="Bandwidth" lines={BANDWIDTH} format={bits} {...common} />}
      </div>
    </section>
  );
}
