import { signal } from "@preact/signals";
import { useSignal } from "@preact/signals";
import type { ModuleInfo, ParameterInfo } from "../api";
import { faultOf, limits } from "../model/parameters";
import { shown } from "../model/text";
import { Foreign } from "./text";

/** The chosen modules, and the values by module and parameter. They stay while other pages are shown. */
export const chosen = signal<ReadonlySet<string>>(new Set());
export const values = signal<Record<string, string>>({});

/** The modules to choose from, and the forms of the chosen ones. */
export function Modules({ modules }: { modules: ModuleInfo[] }) {
  const filter = useSignal("");
  const wanted = filter.value.trim().toLowerCase();
  const listed = modules.filter((module) => wanted === "" || `${module.name} ${module.description}`.toLowerCase().includes(wanted));
  const toggle = (name: string) => {
    const next = new Set(chosen.value);
    if (!next.delete(name)) next.add(name);
    chosen.value = next;
  };
  return (
    <>
      <section aria-labelledby="choice">
        <div class="title"><h2 id="choice">Modules</h2>
          {modules.length > 8 && <div class="side"><label><span class="hidden">Filter modules</span><input type="search" placeholder="Name or purpose" value={filter.value} onInput={(event) => { filter.value = event.currentTarget.value; }} /></label></div>}
        </div>
        {modules.length === 0 && <p class="soft">weir ui has no modules to offer.</p>}
        <ul class="choice">{listed.slice(0, 200).map((module) => (
          <li key={module.name}><label class="check">
            <input type="checkbox" checked={chosen.value.has(module.name)} onChange={() => toggle(module.name)} />
            <span><strong>{shown(module.name)}</strong> <span class="soft">{shown(module.version)}</span><br /><span class="soft"><Foreign text={module.description} max={140} /></span></span>
          </label></li>
        ))}</ul>
      </section>
      {modules.filter((module) => chosen.value.has(module.name) && module.parameters.length > 0).map((module) => (
        <section key={module.name} aria-label={`Parameters of ${shown(module.name)}`}>
          <h2>{shown(module.name)} <span class="soft">parameters</span></h2>
          <div class="parameters">{module.parameters.slice(0, 64).map((parameter) => <Parameter key={parameter.name} module={module.name} parameter={parameter} />)}</div>
        </section>
      ))}
    </>
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
