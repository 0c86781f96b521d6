import { useSignal } from "@preact/signals";
import type { RunRequest } from "../api";
import { faultOf } from "../model/parameters";
import { plural, shown } from "../model/text";
import { bytes } from "../model/units";
import { Progress } from "../parts/run-progress";
import { Foreign, Title } from "../parts/text";
import { run, startRun } from "../run";
import { mayManage, snapshot, state } from "../store";
import { Source, type RunSource } from "../parts/run-source";
import { chosenOf, Modules, values } from "../parts/run-modules";

/** The longest time on an interface, as in the server. */
const SECONDS_MAX = 86_400;

/** Runs modules over a capture, or over an interface for a while, on the machine of `weir ui`. */
export function RunPage() {
  const source = useSignal<RunSource>({ kind: "file", file: null });
  const tried = useSignal(false);
  if (run.value !== null) return <><Title>Run</Title><Progress /></>;
  const modules = state.value?.modules ?? [];
  const picked = chosenOf(modules, source.value.kind === "file");
  const faults = faultsOf(source.value, picked.length, picked.flatMap((module) =>
    module.parameters.flatMap((parameter) => {
      const fault = faultOf(parameter, values.value[`${module.name} ${parameter.name}`] ?? "");
      return fault === null ? [] : [`${shown(module.name)}, ${shown(parameter.name)}: ${fault}`];
    })));
  const start = () => {
    tried.value = true;
    if (faults.length > 0) return;
    const request: RunRequest = {
      source: source.value.kind === "file" && source.value.file ? { upload: { name: source.value.file.name, bytes: source.value.file.size } }
        : { interface: source.value.kind === "interface" ? { name: source.value.name, seconds: Number(source.value.seconds) } : { name: "", seconds: 0 } },
      modules: picked.map((module) => ({
        module: module.name,
        set: Object.fromEntries(module.parameters.map((parameter) => [parameter.name, (values.value[`${module.name} ${parameter.name}`] ?? "").trim()]).filter(([, value]) => value !== "")),
      })),
    };
    tried.value = false;
    void startRun(request, source.value.kind === "file" ? source.value.file : null);
  };
  return (
    <>
      <Title>Run</Title>
      <form noValidate onSubmit={(event) => {
        event.preventDefault();
        start();
      }}>
        <Source source={source} interfaces={mayManage.value ? interfaces() : null} />
        <Modules modules={modules} picked={picked} />
        <section class="go" aria-label="Start">
          <p class="soft">{source.value.kind === "file"
            ? "The modules run in weir's sandbox on this machine, as the user of weir ui. The capture is not stored. The report is deleted when it is closed."
            : "The modules run on the node, in a session that is closed at the end. The report is deleted when it is closed."}</p>
          <div class="buttons"><button type="submit" class="primary">Run {picked.length > 0 ? plural(picked.length, "module") : ""}</button></div>
          {tried.value && faults.length > 0 && <ul class="faults" role="alert">{faults.slice(0, 12).map((fault) => <li>▲ <Foreign text={fault} max={200} /></li>)}</ul>}
        </section>
      </form>
    </>
  );
}

/** The interfaces to choose from: those that the credential names, those of the node, or those of the user's sessions. */
function interfaces(): string[] {
  const seen = snapshot.value;
  if (state.value?.run_interfaces) return state.value.run_interfaces;
  if (seen !== null && seen.interfaces.length > 0) return seen.interfaces.map((it) => it.name);
  return [...new Set((seen?.sessions ?? []).flatMap((session) => session.channels.map((channel) => channel.interface)).filter((name) => name !== ""))];
}

function faultsOf(source: RunSource, modules: number, parameters: string[]): string[] {
  const faults: string[] = [];
  const most = state.value?.run_bytes_max ?? null;
  if (source.kind === "file") {
    if (source.file === null) faults.push("Choose a capture.");
    else if (source.file.size === 0) faults.push("The file is empty.");
    else if (most !== null && source.file.size > most) faults.push(`The file has ${bytes(source.file.size)}; weir ui takes at most ${bytes(most)}.`);
  } else {
    if (source.name === "") faults.push("Choose an interface.");
    if (!/^\d{1,5}$/.test(source.seconds) || Number(source.seconds) < 1 || Number(source.seconds) > SECONDS_MAX) faults.push(`Give a time from 1 to ${SECONDS_MAX} seconds.`);
  }
  if (modules === 0) faults.push("Choose at least one module.");
  return [...faults, ...parameters];
}
