// The form that changes a session's share. It asks admission before `Apply` can be pressed, and can undo the change.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, type ChangeRequest } from "../api";
import { changeOf, faultsOf, formOf, identityOf, statesAll, type ShareForm } from "../model/share";
import type { SessionStatus } from "../snapshot";
import { isStale, mayChange, mayManage } from "../store";
import { refusal } from "./act";
import { Facts } from "./table";
import { Foreign, Note, Problem } from "./text";
import { CpuFieldset, Field, OutputFieldset } from "./share-fields";
import { bits, bytes, nanos } from "../model/units";

const CHECK_AFTER_MS = 400;

export function ShareSection({ session }: { session: SessionStatus }) {
  return (
    <section aria-labelledby="share">
      <h2 id="share">Share</h2>
      {mayChange(session) ? <Editor key={identityOf(session)} session={session} /> : <Present session={session} />}
    </section>
  );
}

/** The present share, for a user who cannot change it. */
function Present({ session }: { session: SessionStatus }) {
  return (
    <>
      <p class="soft">{mayManage.value ? "The holder of this session does not share the right to change it." : "Your credential lets you look at this session, and not change it."}</p>
      <Facts facts={[
        ["Memory", bytes(session.memory_reserved)],
        ...session.cpu.map((cpu): [string, string] => [`CPU ${cpu.name}`, cpu.period_ns > 0 ? `${nanos(cpu.slice_ns)} in ${nanos(cpu.period_ns)}` : "no reservation"]),
        ...(session.outputs ?? []).map((output): [string, string] => [`Output ${output.name}`, output.reserved_bits > 0 ? bits(output.reserved_bits) : "no reservation"]),
      ]} />
    </>
  );
}

/**
 * The last change of each session by this page, by the session's identity. It stays while other pages are shown, and so does
 * `Undo`. A session that has replaced another one of the same name has none.
 */
const lastChanges = signal<ReadonlyMap<string, LastChange>>(new Map());
interface LastChange {
  notes: string[];
  undo: ChangeRequest | null;
  text: string;
}

type Check = { for: string; refused: string | null } | null;

function Editor({ session }: { session: SessionStatus }) {
  const [base, setBase] = useState<ShareForm>(() => formOf(session));
  const [form, setForm] = useState<ShareForm>(base);
  const [check, setCheck] = useState<Check>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const done = lastChanges.value.get(identityOf(session)) ?? null;
  const setDone = (change: LastChange) => {
    lastChanges.value = new Map(lastChanges.value).set(identityOf(session), change);
  };
  const latest = useRef(session);
  latest.current = session;

  const present = formOf(session);
  const change = changeOf(session, base, form);
  // Another user may change the session meanwhile. The fields follow as long as nothing is typed.
  const presentText = JSON.stringify(present);
  const [seen, setSeen] = useState(presentText);
  const isOutdated = presentText !== seen;
  const takePresent = () => {
    setBase(present);
    setForm(present);
    setSeen(presentText);
  };
  useEffect(() => {
    if (isOutdated && change === null && !isBusy) takePresent();
  }, [isOutdated, change === null, isBusy]);

  const faults = faultsOf(form);
  const isFaulty = Object.keys(faults).length > 0;
  const text = change === null ? "" : JSON.stringify(change);
  useEffect(() => {
    setCheck(null);
    if (change === null || isFaulty) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      api.check({ change }, abort.signal).then(
        (answer) => setCheck({ for: text, refused: answer.refused }),
        (error: unknown) => {
          if (!abort.signal.aborted) setCheck({ for: text, refused: error instanceof Error ? error.message : String(error) });
        },
      );
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, isFaulty]);

  const apply = async (request: ChangeRequest, undo: ChangeRequest | null, what: string, next: ShareForm) => {
    setBusy(true);
    setProblem(null);
    let notes: string[] = [];
    const why = await refusal(api.request({ change: request }).then((outcome) => {
      if ("done" in outcome) notes = outcome.done.notes;
      return outcome;
    }));
    setBusy(false);
    if (why !== null) {
      setProblem(why);
      return;
    }
    setBase(next);
    setForm(next);
    setDone({ notes, undo, text: what });
  };
  const isReady = change !== null && !isFaulty && check !== null && check.for === text && check.refused === null;
  const submit = () => {
    if (!isReady || isBusy || isStale.value) return;
    void apply(change, changeOf(session, form, base), "The share is changed.", form);
  };
  const undo = () => {
    if (done?.undo) void apply(done.undo, null, "The earlier share is back.", formOfUndo(latest.current, base, done.undo));
  };

  return (
    <form class="share" noValidate onSubmit={(event) => {
      event.preventDefault();
      submit();
    }}>
      <Field id="memory" label="Memory" value={form.memory} fault={faults["memory"]} onInput={(memory) => setForm({ ...form, memory })} />
      {form.cpu.map((cpu, at) => (
        <CpuFieldset key={cpu.name} fields={cpu} faults={faults} statesWeight={session.cpu[at] ? statesAll(session.cpu[at]) : true}
          onChange={(fields) => setForm({ ...form, cpu: form.cpu.map((it, n) => (n === at ? fields : it)) })} />
      ))}
      {form.outputs.map((output, at) => (
        <OutputFieldset key={output.status.name} fields={output} faults={faults}
          onChange={(fields) => setForm({ ...form, outputs: form.outputs.map((it, n) => (n === at ? fields : it)) })} />
      ))}
      <div class="verdict" aria-live="polite"><Verdict change={change} isFaulty={isFaulty} check={check?.for === text ? check : null} /></div>
      {problem !== null && <Problem text={problem} />}
      {isOutdated && change !== null && !isBusy && <p class="soft">The session was changed meanwhile. <button type="button" class="inline" onClick={takePresent}>Take the present values</button></p>}
      <div class="buttons">
        <button type="submit" class="primary" disabled={!isReady || isBusy || isStale.value}>Apply</button>
        <button type="button" disabled={change === null || isBusy} onClick={() => { setForm(base); setProblem(null); }}>Reset</button>
        {done?.undo && <button type="button" disabled={isBusy || isStale.value} onClick={undo}>Undo</button>}
      </div>
      {done && <Note><p><span class="good" aria-hidden="true">●</span> {done.text}{done.notes.map((note) => <> <Foreign text={note} max={200} /></>)}</p></Note>}
    </form>
  );
}

/** Returns the form as it is after an undone change. */
function formOfUndo(session: SessionStatus, base: ShareForm, undo: ChangeRequest): ShareForm {
  const present = formOf(session);
  return {
    memory: undo.memory ?? base.memory,
    cpu: base.cpu.map((fields) => {
      const back = undo.cpu?.find((cpu) => cpu.name === fields.name);
      return back ? { ...fields, period: back.period ?? "", slice: back.slice ?? "", borrow: back.borrow, weight: back.weight === undefined ? "" : String(back.weight) } : fields;
    }),
    outputs: base.outputs.map((fields, at) => {
      const back = undo.output?.find((output) => output.name === fields.status.name);
      const status = present.outputs[at]?.status ?? fields.status;
      return back ? { status, reserve: back.reserve ?? "", cap: back.cap ?? "", weight: String(back.weight) } : fields;
    }),
  };
}

function Verdict({ change, isFaulty, check }: { change: ChangeRequest | null; isFaulty: boolean; check: Check }) {
  if (change === null) return <p class="soft">Change a value to see what admission says to it.</p>;
  if (isFaulty) return <p class="soft">Correct the marked fields.</p>;
  if (check === null) return <p class="soft">Asking the node …</p>;
  if (check.refused !== null) return <p class="bad"><span aria-hidden="true">▲</span> Would be refused: <Foreign text={check.refused} max={400} /></p>;
  return <p class="good"><span aria-hidden="true">●</span> Admission would accept this.</p>;
}
