import { useMemo, useState } from "preact/hooks";
import { api, type Decision } from "../api";
import { askedFor, eventOf, filtered, grouped, hintOf, isBad, outcomeOf, timesOf, whoOf, type OutcomeFilter } from "../model/decisions";
import { clock, dateTime } from "../model/time";
import { plural } from "../model/text";
import { useLoaded } from "../parts/load";
import { Command, Foreign, Key, Problem, Title } from "../parts/text";
import { sessionHref } from "../routes";
import { snapshot } from "../store";

const EVERY_MS = 10_000;
const SHOWN_AT_ONCE = 100;
const SINCE: [string, number][] = [["last hour", 3_600], ["last day", 86_400], ["last week", 604_800], ["last 30 days", 2_592_000]];

/** The decisions of the node in words, with what would have to be granted. */
export function DecisionsPage() {
  const [since, setSince] = useState(3_600);
  const [outcome, setOutcome] = useState<OutcomeFilter>("bad");
  const [session, setSession] = useState("");
  const [who, setWho] = useState("");
  const [most, setMost] = useState(SHOWN_AT_ONCE);
  const { value, problem, isLoading, reload } = useLoaded(() => api.decisions(since), [since], EVERY_MS);
  const all = useMemo(() => grouped(value?.decisions ?? []), [value]);
  const list = filtered(all, { outcome, session, who });
  return (
    <>
      <Title side={<button type="button" onClick={reload}>Refresh</button>}>Decisions</Title>
      <section aria-label="Decisions">
        <div class="filters">
          <label class="field"><span>Time</span><select value={since} onChange={(event) => setSince(Number(event.currentTarget.value))}>{SINCE.map(([text, seconds]) => <option value={seconds}>{text}</option>)}</select></label>
          <label class="field"><span>Outcome</span><select value={outcome} onChange={(event) => setOutcome(event.currentTarget.value as OutcomeFilter)}>
            <option value="bad">refused, failed, ended</option><option value="all">all</option><option value="refused">refused: no right</option><option value="failed">failed</option><option value="allowed">allowed</option><option value="closed">session ended</option>
          </select></label>
          <label class="field"><span>Session</span><input type="search" value={session} onInput={(event) => setSession(event.currentTarget.value)} /></label>
          <label class="field"><span>Holder</span><input type="search" value={who} onInput={(event) => setWho(event.currentTarget.value)} /></label>
        </div>
        {problem !== null && <Problem text={problem} />}
        <p class="soft" role="status">{value === null ? (isLoading ? "Loading …" : "") : `${plural(list.length, "decision")}${list.length < all.length ? ` of ${all.length}` : ""}`}</p>
        {value !== null && list.length === 0 && outcome === "bad" && session === "" && who === "" && <p><span class="good" aria-hidden="true">●</span> Nothing was refused in this time.</p>}
        <ul class="news decisions">{list.slice(0, most).map((decision) => <Item decision={decision} />)}</ul>
        {list.length > most && <button type="button" onClick={() => setMost(most + SHOWN_AT_ONCE)}>Show more</button>}
      </section>
    </>
  );
}

function Item({ decision }: { decision: Decision }) {
  const isOpen = snapshot.value?.sessions.some((session) => session.name === decision.session) ?? false;
  const name = decision.session === null ? null : <Foreign text={decision.session} max={48} />;
  const one = Math.floor(decision.begin_ms / 1000) === Math.floor(decision.end_ms / 1000);
  return (
    <li class={isBad(decision.outcome) ? "medium" : ""}>
      <p>
        <span class={isBad(decision.outcome) ? "outcome bad" : "outcome good"}><span aria-hidden="true">{isBad(decision.outcome) ? "▲" : "●"}</span> {eventOf(decision) === null || decision.outcome === "closed" ? outcomeOf(decision.outcome) : "noted"}</span>{" "}
        {eventOf(decision) ?? <>{whoOf(decision)} asked {askedFor(decision)}</>}{name !== null && <> {isOpen && decision.session !== null ? <a href={sessionHref(decision.session)}>{name}</a> : <strong>{name}</strong>}</>}
        {timesOf(decision)}
      </p>
      {decision.reason !== null && decision.reason !== "" && <p class="reason"><Foreign text={decision.reason} max={400} /></p>}
      {(decision.advice ?? []).slice(0, 8).map((advice) => (
        <div class="advice">
          <p>→ <Foreign text={advice.text} max={300} /></p>
          {advice.command !== null && advice.command !== undefined && <Command text={advice.command} />}
          {advice.command !== null && advice.command !== undefined && hintOf(advice.command, advice.states_rights === true) !== "" && <p class="soft">{hintOf(advice.command, advice.states_rights === true)}</p>}
        </div>
      ))}
      <p class="soft">{dateTime(decision.begin_ms)}{one ? "" : ` to ${clock(decision.end_ms)}`}
        {decision.who !== null && <> · holder <Key text={decision.who} /></>}
        {decision.credentials.length > 0 && <> · credential {decision.credentials.slice(0, 8).map((id, at) => <>{at > 0 ? " → " : ""}<Key text={id} /></>)}</>}
      </p>
    </li>
  );
}
