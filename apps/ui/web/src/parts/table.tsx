import type { ComponentChildren } from "preact";

/** A table that scrolls within its own box, so that the page never scrolls sideways. */
export function Table({ label, children, class: name }: { label: string; children: ComponentChildren; class?: string }) {
  // A box that scrolls must be reachable by keyboard.
  return <div class={`scroll ${name ?? ""}`} tabIndex={0} role="group" aria-label={label}><table>{children}</table></div>;
}

interface SortProps<K extends string> {
  id: K;
  title: string;
  isNumber?: boolean;
  class?: string;
  hint?: string;
  sort: { key: K; direction: 1 | -1 };
  onSort: (key: K) => void;
}

/** The heading of a column that can be sorted. */
export function SortHead<K extends string>({ id, title, isNumber, hint, sort, onSort, class: name }: SortProps<K>) {
  const isSorted = sort.key === id;
  const direction = sort.direction === 1 ? "ascending" : "descending";
  return (
    <th scope="col" class={`${isNumber ? "n" : ""} ${name ?? ""}`} aria-sort={isSorted ? direction : undefined}>
      <button type="button" class="sort" title={hint} onClick={() => onSort(id)}>
        {title}<span class="arrow" aria-hidden="true">{isSorted ? (sort.direction === 1 ? "▴" : "▾") : ""}</span>
      </button>
    </th>
  );
}

/** A list of facts: terms and values. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return <dl class="pairs">{facts.map(([term, value]) => <div><dt>{term}</dt><dd>{value}</dd></div>)}</dl>;
}
