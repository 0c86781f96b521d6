import type { CpuFields, Faults, OutputFields } from "../model/share";
import { percent, quantity } from "../model/units";
import { Foreign } from "./text";

interface FieldProps {
  id: string;
  label: string;
  value: string;
  fault: string | undefined;
  onInput: (value: string) => void;
  placeholder?: string;
}

/** A field of text with its fault. */
export function Field({ id, label, value, fault, onInput, placeholder }: FieldProps) {
  const faultId = `fault-${id.replaceAll(" ", "-")}`;
  return (
    <label class="field"><span>{label}</span>
      <input type="text" autocomplete="off" spellcheck={false} value={value} placeholder={placeholder} aria-invalid={fault !== undefined}
        aria-describedby={fault === undefined ? undefined : faultId} onInput={(event) => onInput(event.currentTarget.value)} />
      {fault !== undefined && <span class="fault-text" id={faultId}>▲ {fault}</span>}
    </label>
  );
}

export function CpuFieldset({ fields, faults, statesWeight, onChange }: { fields: CpuFields; faults: Faults; statesWeight: boolean; onChange: (fields: CpuFields) => void }) {
  const { name } = fields;
  const [slice, period] = [quantity(fields.slice, "time"), quantity(fields.period, "time")];
  const set = (key: "period" | "slice" | "weight") => (value: string) => onChange({ ...fields, [key]: value });
  return (
    <fieldset>
      <legend>Virtual CPU <Foreign text={name} max={48} /> <span class="soft">on core {fields.core}{slice !== null && period !== null && period > 0 && slice <= period ? `: ${percent(slice / period)}` : ""}</span></legend>
      <div class="row">
        <Field id={`slice ${name}`} label="Slice" value={fields.slice} placeholder="no reservation" fault={faults[`slice ${name}`]} onInput={set("slice")} />
        <Field id={`period ${name}`} label="in each period of" value={fields.period} placeholder="no reservation" fault={faults[`period ${name}`]} onInput={set("period")} />
        <Field id={`weight ${name}`} label="Weight" value={fields.weight} placeholder="100" fault={faults[`weight ${name}`]} onInput={set("weight")} />
        <label class="check"><input type="checkbox" checked={fields.borrow} onChange={(event) => onChange({ ...fields, borrow: event.currentTarget.checked })} /> also gets spare time</label>
      </div>
      {!statesWeight && <p class="soft">This node does not state the weight. Without one, a change sets it to 100.</p>}
    </fieldset>
  );
}

export function OutputFieldset({ fields, faults, onChange }: { fields: OutputFields; faults: Faults; onChange: (fields: OutputFields) => void }) {
  const { name, link, filter } = fields.status;
  const set = (key: "reserve" | "cap" | "weight") => (value: string) => onChange({ ...fields, [key]: value });
  return (
    <fieldset>
      <legend>Output channel <Foreign text={name} max={48} /> <span class="soft">on <Foreign text={link} max={24} /></span></legend>
      <div class="row">
        <Field id={`reserve ${name}`} label="Reserve" value={fields.reserve} placeholder="none" fault={faults[`reserve ${name}`]} onInput={set("reserve")} />
        <Field id={`cap ${name}`} label="Cap" value={fields.cap} placeholder="none" fault={faults[`cap ${name}`]} onInput={set("cap")} />
        <Field id={`output weight ${name}`} label="Weight" value={fields.weight} fault={faults[`output weight ${name}`]} onInput={set("weight")} />
      </div>
      {filter === undefined && <p class="soft">This node does not state the output's filter. If it has one, change the output by command, because a change here removes it.</p>}
    </fieldset>
  );
}
