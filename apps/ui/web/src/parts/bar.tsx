import type { ReadonlySignal } from "@preact/signals";

type Number_ = number | ReadonlySignal<number>;

/**
 * A bar of an amount, with a mark at the promise. It repeats numbers that stand beside it, so it is hidden from screen
 * readers. Both shares run from 0 to 1, and may be signals: then the page is not rendered for a new value.
 */
export function Bar({ fill, mark, isOver }: { fill: Number_; mark: Number_; isOver?: boolean }) {
  return (
    <svg class={isOver ? "bar over" : "bar"} viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="1" height="1" />
      <rect class="fill" width={fill} height="1" />
      <line class="mark" x1={mark} x2={mark} y1="0" y2="1" />
    </svg>
  );
}

/** A bar of a part of a whole. */
export function PartBar({ part, whole }: { part: number | null; whole: number }) {
  const fill = part === null || !(whole > 0) ? 0 : Math.min(1, Math.max(0, part / whole));
  return <Bar fill={fill} mark={-1} isOver={fill > 0.9} />;
}
