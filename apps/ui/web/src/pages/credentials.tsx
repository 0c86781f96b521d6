import { api, type Credential, type Used } from "../api";
import { countdown, dateTime } from "../model/time";
import { plural, shown } from "../model/text";
import { refusal } from "../parts/act";
import { PartBar } from "../parts/bar";
import { ask } from "../parts/dialog";
import { useLoaded } from "../parts/load";
import { Foreign, Key, Problem, Title } from "../parts/text";
import { holderHref, sessionHref } from "../routes";
import { now, state } from "../store";

const EVERY_MS = 15_000;
/** The holder's last characters, which are typed before a revocation. */
const TYPED = 4;
/** A credential has at most 8 blocks. */
const DEPTH_MAX = 8;
const DELEGATES_MAX = 500;

/** The tree of delegation under each root, with the use of each ceiling. */
export function CredentialsPage() {
  const { value, problem, reload } = useLoaded(() => api.credentials(), [], EVERY_MS);
  return (
    <>
      <Title>Credentials</Title>
      {problem !== null && <Problem text={problem}><button type="button" onClick={reload}>Try again</button></Problem>}
      {value === null && problem === null && <p class="soft">Loading …</p>}
      {value?.roots.length === 0 && <section><p>No credential is in use on this node. <code>weir grant</code> makes one; it appears here with its first session or request.</p></section>}
      {value?.roots.map((root) => (
        <section key={root.root} aria-label={`Root ${shown(root.root)}`}>
          <h2>Root <Key text={root.root} isOwn={isOwn(root.root)} /></h2>
          <p class="soft">A bar shows how much of the credential is promised to its sessions, and to those of its delegates.</p>
          {root.policy_ceilings.length > 0 && <><p class="soft">The policy limits all of its credentials together:</p><Ceilings used={root.policy_ceilings} /></>}
          {root.grants.length === 0 ? <p class="soft">None of its credentials is in use.</p> : <Tree list={root.grants} from={root.root} depth={1} reload={reload} />}
        </section>
      ))}
      {(value?.left_out ?? 0) > 0 && <p class="soft">{plural(value?.left_out ?? 0, "further credential")} of this node cannot be shown at once.</p>}
    </>
  );
}

/** Returns true if a key is that of this page's user. */
function isOwn(key: string): boolean {
  return state.value?.who.split(" ").includes(key) ?? false;
}

/** Credentials of one giver: a root, or a holder who has delegated. */
function Tree({ list, from, depth, reload }: { list: Credential[]; from: string; depth: number; reload: () => void }) {
  return (
    <ul class="tree">{list.slice(0, DELEGATES_MAX).map((credential) => (
      <li key={credential.id}>
        <Card credential={credential} from={from} isDelegated={depth > 1} reload={reload} />
        {credential.delegates.length > 0 && (depth < DEPTH_MAX ? <Tree list={credential.delegates} from={credential.holder} depth={depth + 1} reload={reload} /> : <p class="soft">Further delegates are not shown.</p>)}
      </li>
    ))}</ul>
  );
}

function Card({ credential, from, isDelegated, reload }: { credential: Credential; from: string; isDelegated: boolean; reload: () => void }) {
  const { expires_s, revoked } = credential;
  const isExpired = expires_s !== null && expires_s * 1000 <= now.value;
  const isSoon = expires_s !== null && !isExpired && expires_s * 1000 - now.value < 86_400_000;
  return (
    <article class={revoked || isExpired ? "credential ended" : "credential"} aria-label={`Credential of ${shown(credential.holder)}`}>
      <div class="title">
        <h3><Key text={credential.holder} isOwn={isOwn(credential.holder)} /></h3>
        <div class="side">
          {revoked ? <span class="bad">▲ revoked</span> : (
            <span class={isSoon || isExpired ? "bad" : "soft"}>
              {expires_s === null ? "does not expire" : <>{isSoon || isExpired ? "▲ " : ""}{isExpired ? "expired" : "expires"} {countdown(expires_s, now.value)} <span class="soft">({dateTime(expires_s * 1000)})</span></>}
            </span>
          )}
          {credential.may_revoke && !revoked && <button type="button" class="small danger" aria-label={`Revoke the credential of ${shown(credential.holder)}`} onClick={() => askRevoke(credential, reload)}>Revoke …</button>}
        </div>
      </div>
      <p class="soft">{isDelegated ? <>delegated by <Key text={from} isOwn={isOwn(from)} /></> : "granted by the root"} · <Key text={credential.id} /> · <a href={holderHref(credential.holder)}>usage</a>{credential.sessions.length > 0 && <> · {credential.sessions.length === 1 ? "session" : "sessions"} {credential.sessions.slice(0, 64).map((name, at) => <>{at > 0 ? ", " : ""}<a href={sessionHref(name)}>{shown(name)}</a></>)}</>}</p>
      <Ceilings used={credential.used} />
      {credential.allows.length > 0 && (
        <details><summary>What it allows</summary>
          <dl class="pairs">{credential.allows.slice(0, 64).map(([what, how]) => <div><dt><Foreign text={what} max={60} /></dt><dd><Foreign text={how} max={300} /></dd></div>)}</dl>
        </details>
      )}
    </article>
  );
}

function Ceilings({ used }: { used: Used[] }) {
  if (used.length === 0) return null;
  return (
    <ul class="ceilings">{used.slice(0, 32).map((it) => {
      const isNone = it.granted === 0 && it.used === 0;
      const share = it.granted === null ? 0 : it.granted > 0 ? it.used / it.granted : it.used > 0 ? 1 : 0;
      return (
        <li>
          <span class="what"><Foreign text={it.resource} max={40} /></span>
          <PartBar part={share} whole={1} />
          {isNone ? <span class="amount soft">none</span> : <span class="amount"><Foreign text={it.used_text} max={40} /><span class="soft">{it.granted === null ? ", no limit" : <> of <Foreign text={it.granted_text} max={40} />{share >= 1 ? ", nothing left" : ""}</>}</span></span>}
        </li>
      );
    })}</ul>
  );
}

function askRevoke(credential: Credential, reload: () => void): void {
  const end = credential.holder.slice(-TYPED);
  ask({
    title: "Revoke this credential?",
    body: <>
      <p>Holder: <code class="whole">{shown(credential.holder)}</code></p>
      <p>Its sessions and those of all its delegates end within a second: {credential.sessions.length === 0 ? "it has none now" : credential.sessions.slice(0, 16).map((name) => shown(name)).join(", ")}. A revocation cannot be undone; a new credential has to be granted.</p>
    </>,
    verb: "Revoke",
    typed: { label: `Type the last ${TYPED} characters of the holder's key: ${shown(end)}`, text: end },
    act: async () => {
      const why = await refusal(api.revoke(credential.id));
      if (why === null) reload();
      return why;
    },
  });
}
