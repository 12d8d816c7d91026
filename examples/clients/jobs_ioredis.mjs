// ioredis: at most 2 jobs of a key at the same time, and 10 a minute. Lines "start|renew|end KEY ID".
//
//     printf 'start export:42 a\nend export:42 a\n' | REDIS_URL=redis://127.0.0.1:6379 node jobs_ioredis.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";

const limiter = new Redis(process.env.REDIS_URL, {
  connectTimeout: 250,
  commandTimeout: 250,
  // A call that got no answer may have been charged: neither queued nor sent again, it can't be
  // charged when nobody wants the answer any more.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting
await once(limiter, "ready", { signal: AbortSignal.timeout(1000) }).catch(() => {});

/** Takes a lease and a token, or neither. The braces keep both keys in one slot of a cluster. */
async function start(key, job) {
  const keys = [`rl:{${key}}:running`, `rl:{${key}}:rate`];
  const policies = ["LEASE", 2, 30000, job, "TOKEN", 10, 10, 60000];
  const [allowed, retryAfterMs] = await limiter.call("RL.ALL", 2, ...keys, ...policies);
  return allowed ? "200" : `429 Retry-After: ${Math.ceil(retryAfterMs / 1000)}`;
}

/** RENEW every 10 seconds while the job runs; RELEASE at its end. */
async function hold(key, job, word) {
  const [held] = await limiter.call("RL.LEASE", `rl:{${key}}:running`, 2, 30000, job, word);
  return held ? "200" : "410"; // the lease had ended: another job may run in its place
}

for await (const line of createInterface({ input: process.stdin })) {
  const [what, key, job] = line.split(" ");
  try {
    if (what === "start") console.log(await start(key, job));
    else console.log(await hold(key, job, { renew: "RENEW", end: "RELEASE" }[what]));
  } catch (error) {
    console.log(503, error.message); // or go on: let pass
  }
}
limiter.disconnect();
