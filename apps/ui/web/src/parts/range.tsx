import { useSignal } from "@preact/signals";
import type { Range } from "./chart";

/** The lengths of time that a button shows; the whole hour is the first. */
const LENGTHS: [string, number | null][] = [["1 h", null], ["15 min", 900], ["5 min", 300], ["1 min", 60]];

/** The range of the charts of a page, chosen by buttons or by dragging over a chart. */
export function useRange() {
  const range = useSignal<Range>(null);
  const zoom = (next: Range) => {
    range.value = next;
  };
  const buttons = (
    <div class="segments" role="group" aria-label="Time that the charts show">
      {LENGTHS.map(([text, seconds]) => (
        <button type="button" aria-pressed={range.value === seconds} onClick={() => zoom(seconds)}>{text}</button>
      ))}
      {Array.isArray(range.value) && <button type="button" aria-pressed={true} onClick={() => zoom(null)}>selected, reset</button>}
    </div>
  );
  return { range, zoom, buttons };
}
