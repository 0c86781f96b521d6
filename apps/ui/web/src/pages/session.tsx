import { api } from "../api";
import { refusal } from "../parts/act";
import { ask } from "../parts/dialog";
import { FindingList } from "../parts/node-news";
import { SessionCharts } from "../parts/session-charts";
import { Limits } from "../parts/session-limits";
import { Losses } from "../parts/session-losses";
import { Modules } from "../parts/session-modules";
import { Rows } from "../parts/session-rows";
import { Channels, Outputs, VirtualCpus } from "../parts/session-tables";
import { ShareSection } from "../parts/share-form";
import { Foreign, Key, State, Title } from "../parts/text";
import { shown } from "../model/text";
import { lossRate, lossWords } from "../model/losses";
import { hasRight, stateOf } from "../model/sessions";
import { bytes, perSecond, whole } from "../model/units";
import type { SessionStatus } from "../snapshot";
import { losses, mayManage, rates, snapshot, state as user } from "../store";

/** One session: promised and received, losses with causes, modules, rows, and its share. */
export function SessionPage({ name }: { name: string }) {
  const at = snapshot.value?.sessions.findIndex((session) => session.name === name) ?? -1;
  const session = snapshot.value?.sessions[at];
  if (!session) {
    return (
      <section>
        <Title><Foreign text={name} max={60} /></Title>
        <p>There is no session of this name that you may see. It may have been closed; its usage is in the <a href="#/ledger">ledger</a>.</p>
        <p><a href="#/node">All sessions</a></p>
      </section>
    );
  }
  const its = rates.value?.sessions[at];
  const state = stateOf(session);
  const lost = losses.value.get(name) ?? [];
  const words = lossWords(lost);
  const mayFollow = hasRight(session, "follow", user.value?.who ?? "");
  return (
    <div class="session-page">
      <p class="crumbs"><a href="#/node">Sessions</a></p>
      <Title side={<>
        {words !== "" && <a class="bad" href="#losses" onClick={(event) => {
          // The fragment belongs to the routes, so the link scrolls itself.
          event.preventDefault();
          document.getElementById("losses")?.scrollIntoView({ block: "center" });
        }}>▲ loses {perSecond(lossRate(lost))}: {words}</a>}
        <State text={state.text} isGood={state.isRunning} />
        {mayManage.value && <button type="button" class="danger" onClick={() => askClose(name)}>Close session …</button>}
      </>}><Foreign text={name} max={60} /></Title>
      <About session={session} />
      <SessionCharts name={name} sends={(session.outputs ?? []).length > 0} />
      <div class="grid half">
        <Losses losses={lost} />
        <ShareSection session={session} />
      </div>
      <Modules session={session} rates={its} />
      <div class="grid">
        <VirtualCpus session={session} rates={its} />
        <Channels session={session} rates={its} />
        <Outputs session={session} rates={its} />
        <Limits session={session} />
      </div>
      {(session.findings?.latest ?? []).length > 0 && (
        <section aria-labelledby="found"><h2 id="found">Findings</h2><FindingList list={session.findings?.latest ?? []} /></section>
      )}
      <Rows session={name} isHidden={!mayFollow} streams={mayFollow ? session.modules.flatMap((module) => module.streams.map((stream) => `${module.name}.${stream}`)) : []} />
    </div>
  );
}

function askClose(name: string): void {
  ask({
    title: `Close the session ${shown(name)}?`,
    body: <p>Its modules stop, and its reservations are freed. Records and usage stay on the node. This cannot be undone.</p>,
    verb: "Close session",
    act: async () => {
      const why = await refusal(api.request({ close: { session: name } }));
      if (why === null) location.hash = "#/node";
      return why;
    },
  });
}

function About({ session }: { session: SessionStatus }) {
  const facts = [
    session.credential === undefined ? <span>of the operator</span> : <span>under <Key text={session.credential} />, in the tree of <a href="#/credentials">credentials</a></span>,
    <span>priority {session.priority}</span>,
    <span>memory may grow to {bytes(Math.max(session.memory_max ?? 0, session.memory_reserved))}</span>,
    (session.memory_refused ?? 0) > 0 ? <span class="bad">▲ memory was refused {whole(session.memory_refused ?? 0)} times</span> : null,
    (session.share ?? []).length > 0 ? <span>shared: <Foreign text={(session.share ?? []).join(", ")} max={60} /></span> : null,
    session.sums_only ? <span>of a delegate, who does not share it: only sums are shown</span> : null,
  ];
  return <p class="facts">{facts.filter((fact) => fact !== null)}</p>;
}
