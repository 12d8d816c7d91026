// node-redis: at most 2 jobs of a key at the same time, and 10 a minute. Lines "start|renew|end KEY ID".
//
//     printf 'start export:42 a\nend export:42 a\n' | REDIS_URL=redis://127.0.0.1:6379 node jobs_node_redis.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const limiter = createClient({
  url: process.env.REDIS_URL,
  socket: { connectTimeout: 250 },
  disableOfflineQueue: true, // a call must not wait for a connection
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting
limiter.connect().catch(() => {});
await once(limiter, "ready", { signal: AbortSignal.timeout(1000) }).catch(() => {});

const call = (...words) =>
  Promise.race([
    limiter.sendCommand(words.map(String)),
    sleep(250, undefined, { ref: false }).then(() => {
      throw new Error("no answer within 250 ms");
    }),
  ]);

/** Takes a lease and a token, or neither. The braces keep both keys in one slot of a cluster. */
async function start(key, job) {
  const keys = [`rl:{${key}}:running`, `rl:{${key}}:rate`];
  const policies = ["LEASE", 2, 30000, job, "TOKEN", 10, 10, 60000];
  const [allowed, retryAfterMs] = await call("RL.ALL", 2, ...keys, ...policies);
  return allowed ? "200" : `429 Retry-After: ${Math.ceil(retryAfterMs / 1000)}`;
}

/** RENEW every 10 seconds while the job runs; RELEASE at its end. */
async function hold(key, job, word) {
  const [held] = await call("RL.LEASE", `rl:{${key}}:running`, 2, 30000, job, word);
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
limiter.destroy();
