import { span, zone } from "../model/time";
import { plural, shown } from "../model/text";
import { bytes } from "../model/units";
import { PAGES, route } from "../routes";
import { lost, rates, snapshot, state, unknown } from "../store";
import { setTheme, theme, type Theme } from "../theme";
import { Foreign } from "./text";

export function Header() {
  const page = route.value.page === "session" ? "node" : route.value.page;
  return (
    <header>
      <div class="bar">
        <a class="brand" href="#/node" aria-label="weir: the node">weir</a>
        <NodeName />
        <nav aria-label="Pages">
          <ul>{PAGES.map(({ path, title }) => (
            <li><a href={`#/${path}`} aria-current={page === path ? "page" : undefined}>{title}</a></li>
          ))}</ul>
        </nav>
        <ThemeSwitch />
      </div>
    </header>
  );
}

function NodeName() {
  const name = snapshot.value?.node ?? state.value?.node;
  if (name === undefined) return <span class="node-name soft">{unknown.value === null ? "connecting …" : "not connected"}</span>;
  const isLost = lost.value !== null;
  return (
    <span class="node-name">
      <span class={isLost ? "dot bad" : "dot good"} aria-hidden="true">{isLost ? "▲" : "●"}</span>
      <span class="hidden">{isLost ? "not connected: " : "connected: "}</span>
      <Foreign text={name} max={40} />
    </span>
  );
}

const THEMES: [Theme, string][] = [["system", "Auto"], ["light", "Light"], ["dark", "Dark"]];

function ThemeSwitch() {
  return (
    <label class="theme">
      <span class="hidden">Colours</span>
      <select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
        {THEMES.map(([value, text]) => <option value={value}>{text}</option>)}
      </select>
    </label>
  );
}

/** Facts about the node in one line. */
export function NodeFacts() {
  const now = snapshot.value;
  if (now === null) return null;
  const busy = (rates.value?.cores ?? []).map((core) => (core.busy ?? 0) + (core.overhead ?? 0));
  const load = busy.length === 0 ? "" : `load ${busy.reduce((sum, share) => sum + share, 0).toFixed(2)} of ${plural(busy.length, "core")}`;
  const modules = now.sessions.reduce((sum, session) => sum + session.modules.length, 0);
  const facts = [
    plural(now.sessions.length, "session"),
    plural(modules, "module"),
    load,
    `memory ${bytes(now.memory.reserved)} of ${bytes(now.memory.reservable)}`,
    `up ${span(now.uptime_ns / 1e9)}`,
    `weir ${shown(now.version)}`,
  ];
  return <span class="facts">{facts.filter((fact) => fact !== "").map((fact) => <span>{fact}</span>)}</span>;
}

export function Footer() {
  const it = state.value;
  return (
    <footer>
      {it && <span>You are <Foreign text={it.who} max={90} />{it.may_manage ? "" : ", who may look and not change"}.</span>}{" "}
      {it && <span>Node at <Foreign text={it.address} max={60} />.</span>}{" "}
      <span>Times are in {zone()}.</span>
    </footer>
  );
}
