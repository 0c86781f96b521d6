import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Series } from "../model/samples";
import { clock } from "../model/time";
import { seriesVersion } from "../store";
import { colours } from "../theme";

export interface Line {
  column: string;
  title: string;
  /** The number of the colour, from 1 to 4. */
  colour: 1 | 2 | 3 | 4;
  /** A promise is a dashed step, an amount a filled line. */
  style: "promise" | "area" | "line";
}

/** All samples, the last so many seconds, or the time between two moments in seconds since 1970. */
export type Range = null | number | [number, number];

interface Props {
  title: string;
  series: Series;
  lines: Line[];
  format: (value: number | null) => string;
  /** True for amounts of memory, whose axis has steps of powers of 2. */
  isBinary?: boolean;
  /** The times that all charts of a page show. */
  range: { value: Range };
  onZoom: (range: Range) => void;
}

const HEIGHT = 170;
/** Grid lines of amounts keep round positions, so that the axis does not tremble. */
const DASH = [5, 4];

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const BINARY_STEPS = Array.from({ length: 45 }, (_, n) => 2 ** n);

function options({ lines, format, isBinary, onZoom }: Props, width: number): uPlot.Options {
  const [soft, line] = [css("--soft"), css("--line")];
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "hour" }, drag: { x: true, y: false }, y: false },
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, values: (_, at) => at.map((second) => clock(second * 1000).slice(0, (at[1] ?? 0) - (at[0] ?? 0) < 60 ? 8 : 5)), space: 74, size: 30 },
      { ...axis, size: 84, space: 36, values: (_, at) => at.map((value) => format(value).replace(".0 %", " %")), ...(isBinary ? { incrs: BINARY_STEPS } : {}) },
    ],
    series: [
      {},
      ...lines.map(({ colour, style, title }): uPlot.Series => {
        const stroke = css(`--c${colour}`);
        return {
          label: title, stroke, width: style === "promise" ? 1.5 : 1.6, points: { show: false }, spanGaps: false,
          ...(style === "promise" ? { dash: DASH, paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
          ...(style === "area" ? { fill: `color-mix(in srgb, ${stroke} 14%, transparent)` } : {}),
        };
      }),
    ],
    hooks: {
      // The selection becomes the range of all charts of the page.
      setSelect: [(plot) => {
        if (plot.select.width > 4) {
          onZoom([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }
      }],
    },
  };
}

/** A chart over the last hour with a legend of the present values, or of those under the pointer. */
export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLUListElement>(null);
  const current = useRef(props);
  current.current = props;
  useEffect(() => {
    let plot: uPlot | null = null;
    // A chart that is out of sight is drawn when it comes into sight.
    let isVisible = true;
    const data = (): uPlot.AlignedData => [props.series.at, ...props.lines.map((line) => props.series.column(line.column))];
    const tell = (index: number | null) => {
      const at = index ?? props.series.at.length - 1;
      const values = legend.current?.querySelectorAll("b") ?? [];
      props.lines.forEach((line, n) => {
        const [value, b] = [props.series.column(line.column)[at] ?? null, values[n]];
        if (b) b.textContent = props.format(value);
      });
      const time = legend.current?.querySelector("time");
      if (time) time.textContent = index === null || props.series.at[at] === undefined ? "now" : clock((props.series.at[at] ?? 0) * 1000);
    };
    const draw = () => {
      if (plot === null || document.hidden || !isVisible) return;
      plot.setData(data(), false);
      const [first, last] = [props.series.at[0] ?? 0, props.series.at.at(-1) ?? 1];
      const range = current.current.range.value;
      const [min, max] = Array.isArray(range) ? range : [range === null ? first : last - range, Math.max(last, first + 30)];
      plot.setScale("x", { min, max });
      tell(plot.cursor.idx ?? null);
    };
    const make = () => {
      plot?.destroy();
      if (box.current === null) return;
      const chart = options(current.current, Math.max(200, box.current.clientWidth));
      chart.hooks = { ...chart.hooks, setCursor: [(it) => tell(it.cursor.idx ?? null)] };
      plot = new uPlot(chart, data(), box.current);
      plot.over.addEventListener("dblclick", () => current.current.onZoom(null));
      draw();
    };
    const stopColours = effect(() => {
      void colours.value;
      make();
    });
    const stopData = effect(() => {
      void [seriesVersion.value, current.current.range.value];
      draw();
    });
    const resized = new ResizeObserver(() => {
      const width = Math.max(200, box.current?.clientWidth ?? 200);
      if (plot !== null && plot.width !== width) plot.setSize({ width, height: HEIGHT });
    });
    const sighted = new IntersectionObserver(([entry]) => {
      isVisible = entry?.isIntersecting ?? true;
      draw();
    }, { rootMargin: "200px" });
    if (box.current) {
      resized.observe(box.current);
      sighted.observe(box.current);
    }
    return () => {
      stopColours();
      stopData();
      resized.disconnect();
      sighted.disconnect();
      plot?.destroy();
    };
  }, [props.series, props.lines]);
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <ul class="legend" ref={legend}>
        {props.lines.map((line) => <li class={`c${line.colour} ${line.style}`}><i aria-hidden="true" />{line.title} <b /></li>)}
        <li class="soft"><time /></li>
      </ul>
      <div ref={box} class="plot" role="img" aria-label={`${props.title} over time; the list beside it has the present values`} />
    </figure>
  );
}
