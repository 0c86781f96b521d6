import { signal } from "@preact/signals";
import { useSignal } from "@preact/signals";
import type { ModuleInfo, ParameterInfo } from "../api";
import { faultOf, limits } from "../model/parameters";
import { plural, shown } from "../model/text";
import { Foreign } from "./text";

/** The chosen modules, and the values by module and parameter. They stay while other pages are shown. */
const chosen = signal<ReadonlySet<string> | null>(null);
export const values = signal<Record<string, string>>({});

/**
 * Returns the chosen modules. Until the user chooses, those are the default modules of `weir run` for a capture, and none for
 * an interface, where modules take memory and processor time of the node.
 */
export function chosenOf(modules: ModuleInfo[], isCapture: boolean): ModuleInfo[] {
  const names = chosen.value;
  return modules.filter((module) => names?.has(module.name) ?? (isCapture && module.is_default === true));
}

/** The modules to choose from, and the forms of the chosen ones. */
export function Modules({ modules, picked }: { modules: ModuleInfo[]; picked: ModuleInfo[] }) {
  const filter = useSignal("");
  const wanted = filter.value.trim().toLowerCase();
  const listed = modules.filter((module) => wanted === "" || `${module.name} ${module.description}`.toLowerCase().includes(wanted));
  const names = new Set(picked.map((module) => module.name));
  const defaults = modules.filter((module) => module.is_default === true);
  const toggle = (name: string) => {
    const next = new Set(names);
    if (!next.delete(name)) next.add(name);
    chosen.value = next;
  };
  return (
    <>
      <section aria-labelledby="choice">
        <div class="title"><h2 id="choice">Modules</h2>
          <div class="side">
            {defaults.length > 0 && <button type="button" class="small" onClick={() => { chosen.value = new Set(defaults.map((module) => module.name)); }}>Default modules</button>}
            {picked.length > 0 && <button type="button" class="small" onClick={() => { chosen.value = new Set(); }}>None</button>}
            {modules.length > 8 && <label><span class="hidden">Filter modules</span><input type="search" placeholder="Name or purpose" value={filter.value} onInput={(event) => { filter.value = event.currentTarget.value; }} /></label>}
          </div>
        </div>
        {modules.length === 0 && <p class="soft">weir ui has no modules to offer.</p>}
        <ul class="choice">{listed.slice(0, 200).map((module) => (
          <li key={module.name}><label class="check">
            <input type="checkbox" checked={names.has(module.name)} onChange={() => toggle(module.name)} />
            <span><strong>{shown(module.name)}</strong> <span class="soft">{shown(module.version)}</span><br /><span class="soft"><Foreign text={module.description} max={140} /></span></span>
          </label></li>
        ))}</ul>
      </section>
      {picked.filter((module) => module.parameters.length > 0).map((module) => <Parameters key={module.name} module={module} />)}
    </>
  );
}

/** The form of a module; folded as long as it needs no value. */
function Parameters({ module }: { module: ModuleInfo }) {
  const isNeeded = module.parameters.some((parameter) => parameter.default === null);
  return (
    <section aria-label={`Parameters of ${shown(module.name)}`}>
      <details open={isNeeded}>
        <summary><h2>{shown(module.name)} <span class="soft">{plural(module.parameters.length, "parameter")}{isNeeded ? "" : ", all with a default"}</span></h2></summary>
        <div class="parameters">{module.parameters.slice(0, 64).map((parameter) => <Parameter key={parameter.name} module={module.name} parameter={parameter} />)}</div>
      </details>
    </section>
  );
}

function Parameter({ module, parameter }: { module: string; parameter: ParameterInfo }) {
  const key = `${module} ${parameter.name}`;
  const value = values.value[key] ?? "";
  const set = (next: string) => {
    values.value = { ...values.value, [key]: next };
  };
  const fault = value === "" && parameter.default === null ? null : faultOf(parameter, value);
  const hint = [
    parameter.type,
    limits(parameter.min, parameter.max, parameter.unit) || (parameter.unit ? `in ${parameter.unit}` : ""),
    parameter.default === null ? "required" : `default ${parameter.default === "" ? "empty" : parameter.default}`,
  ].filter((part) => part !== "").join(", ");
  const id = `p-${module}-${parameter.name}`;
  const choices = parameter.type === "bool" ? ["true", "false"] : parameter.type === "enum" ? (parameter.values ?? []) : null;
  const common = { id, "aria-describedby": `${id}-hint`, "aria-invalid": fault !== null, "aria-required": parameter.default === null };
  return (
    <div class="field">
      <label for={id}>{shown(parameter.name)}</label>
      {choices === null
        ? <input type="text" autocomplete="off" spellcheck={false} value={value} placeholder={parameter.default ?? ""} onInput={(event) => set(event.currentTarget.value)} {...common} />
        : <select value={value} onChange={(event) => set(event.currentTarget.value)} {...common}>
          <option value="">{parameter.default === null ? "choose …" : `default: ${shown(parameter.default)}`}</option>
          {choices.slice(0, 256).map((choice) => <option value={choice}>{shown(choice)}</option>)}
        </select>}
      <span class="soft" id={`${id}-hint`}><Foreign text={parameter.description} max={160} /> ({shown(hint)})</span>
      {fault !== null && <span class="fault-text" role="alert">▲ {fault}</span>}
    </div>
  );
}
