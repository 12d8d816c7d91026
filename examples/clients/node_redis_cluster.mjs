// node-redis on a cluster: one decision per line "KEY COST", or "TENANT USER COST", of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 node node_redis_cluster.mjs
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { createCluster } from "redis";

const { username, password } = new URL(process.env.REDIS_URL);
const limiter = createCluster({
  rootNodes: [{ url: process.env.REDIS_URL }], // any node: it names the others
  defaults: {
    username,
    password,
    socket: { connectTimeout: 250 },
    // A call must not wait for a connection and be charged when nobody wants the answer any more.
    disableOfflineQueue: true,
  },
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting

// Where no node answers this fails for good, so the next call tries it again.
let connection;
const connected = () =>
  (connection ??= limiter.connect().catch((error) => {
    connection = undefined;
    throw error;
  }));

// The client's own command time-out ends where the command is written: this one is for the answer.
const answer = (promise) =>
  Promise.race([
    promise,
    sleep(250, undefined, { ref: false }).then(() => {
      throw new Error("no answer within 250 ms");
    }),
  ]);

// The key once more in front, as the client can't tell where it is; false: the call writes.
async function one(key, cost) {
  const [allowed, , , retryAfterMs] = await limiter.sendCommand(key, false, [
    "RL.TOKEN", key, "100", "10", "1000", "COST", cost,
  ]);
  return [allowed, retryAfterMs];
}

/** The user's limit and the tenant's, all or none. The braces keep both keys in one slot. */
function both(tenant, user, cost) {
  const keys = [`rl:{${tenant}}:${user}`, `rl:{${tenant}}`];
  const policies = ["TOKEN", "10", "1", "1000", "COST", cost, "TOKEN", "100", "10", "1000", "COST", cost];
  return limiter.sendCommand(keys[0], false, ["RL.ALL", "2", ...keys, ...policies]);
}

/** HTTP status, headers, and why there was no judgement. */
async function check(call, ...words) {
  try {
    await answer(connected());
    const [allowed, retryAfterMs] = await answer(call(...words));
    if (allowed) return { status: 200, headers: {} };
    // -1: costs more than the bucket holds, no wait helps
    const headers = retryAfterMs < 0 ? {} : { "Retry-After": Math.ceil(retryAfterMs / 1000) };
    return { status: 429, headers };
  } catch (error) {
    return { status: 503, headers: {}, reason: error.message }; // or 200: let pass
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(" ");
  const { status, headers, reason = "" } = await check(words.length === 2 ? one : both, ...words);
  console.log(status, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), reason);
}
if (limiter.isOpen) limiter.destroy();
