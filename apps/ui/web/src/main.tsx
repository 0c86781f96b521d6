import { render } from "preact";
import { adopt, api, ApiError, open, secretOfTab, whenUnknown } from "./api";
import { App } from "./parts/app";
import { startRouting } from "./routes";
import { isConnected, unknown } from "./store";
import { askForSecret, shareSecret } from "./tabs";
import { startTheme } from "./theme";
import { startClock, watch } from "./watch";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/layout.css";
import "./style/table.css";
import "./style/pages.css";

/** The fragment of a new address is the token; those of pages begin with a slash. */
function takeToken(): string | null {
  const token = location.hash.slice(1);
  if (token === "" || token.startsWith("/")) return null;
  // The token must stay neither in the address bar nor in the history.
  history.replaceState(null, "", `${location.pathname}#/node`);
  return token;
}

async function start(): Promise<void> {
  const token = takeToken();
  startTheme();
  startRouting();
  startClock();
  whenUnknown((why) => {
    unknown.value = why;
  });
  const root = document.getElementById("app");
  if (root === null) return;
  root.replaceChildren();
  render(<App />, root);
  try {
    if (token !== null) await open(token);
    else if (secretOfTab() === null) {
      const given = await askForSecret();
      if (given === null) await api.state();
      else adopt(given);
    }
  } catch (error) {
    // A token that was used is refused with 401, of which `whenUnknown` has told. A reload has the secret still.
    if (unknown.value === null) unknown.value = error instanceof ApiError ? error.message : "weir ui does not answer";
    return;
  }
  shareSecret(() => (isConnected.value ? secretOfTab() : null));
  await watch();
}

void start();
