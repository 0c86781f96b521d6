// The secret for a further tab of the same browser, such as a link that was opened in a new tab. Session storage belongs
// to one tab, so a tab without a secret asks the others.
//
// A broadcast channel reaches pages of the same origin alone, and an origin includes the port. So it reaches no page of
// another server on this machine, and no report, which has an origin of its own. After the end of a server, another user
// could serve pages at its port. A tab therefore answers only while its own connection to the server is open: the server
// at this port is then the one that gave the secret.

const CHANNEL = "weir-tabs";
const WAIT_MS = 400;
/** A secret, as the server makes it. */
const SECRET = /^[A-Za-z0-9-]{1,128}$/;

type Message = { ask: string } | { to: string; secret: string };

/** Answers other tabs; `secretNow` returns null as long as there is nothing to hand on. */
export function shareSecret(secretNow: () => string | null): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<unknown>) => {
    const secret = isMessage(data) && "ask" in data ? secretNow() : null;
    if (secret !== null) channel.postMessage({ to: (data as { ask: string }).ask, secret } satisfies Message);
  };
}

/** Asks the other tabs for their secret; null if none answers in time. */
export function askForSecret(): Promise<string | null> {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(CHANNEL);
    const mine = crypto.randomUUID();
    const end = (secret: string | null) => {
      clearTimeout(timer);
      channel.close();
      resolve(secret);
    };
    const timer = setTimeout(() => end(null), WAIT_MS);
    channel.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (isMessage(data) && "to" in data && data.to === mine && SECRET.test(data.secret)) end(data.secret);
    };
    channel.postMessage({ ask: mine } satisfies Message);
  });
}

function isMessage(data: unknown): data is Message {
  if (typeof data !== "object" || data === null) return false;
  return ("ask" in data && typeof data.ask === "string") || ("to" in data && typeof data.to === "string" && "secret" in data && typeof data.secret === "string");
}
