// The colour scheme: that of the system, or the user's choice.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "weir-theme";

export const theme = signal<Theme>(stored());
/** Changes when the colours do, for charts, which have to be drawn again. */
export const colours = signal(0);

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

/** Applies the choice, and keeps it for the next time. */
export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
  apply();
}

function apply(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
  colours.value += 1;
}

export function startTheme(): void {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours.value += 1;
  });
}
