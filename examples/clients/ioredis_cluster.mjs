// ioredis on a cluster: one decision per line "KEY COST", or "TENANT USER COST", of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 node ioredis_cluster.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Cluster, Command } from "ioredis";

// limiter.call() knows the key of built-in commands only: it would send others to any node, and
// two of three to the wrong one.
class RateLimit extends Command {
  getKeys() {
    const first = this.name.toUpperCase() === "RL.ALL" ? 1 : 0; // there, their number comes first
    return [this.args[first]];
  }
}

const { username, password } = new URL(process.env.REDIS_URL);
const limiter = new Cluster([process.env.REDIS_URL], { // any node: it names the others
  // A call that got no answer may have been charged: neither queued nor sent again, it can't be
  // charged when nobody wants the answer any more. Redirects are followed all the same.
  enableOfflineQueue: false,
  retryDelayOnFailover: 0,
  redisOptions: { username, password, connectTimeout: 250, commandTimeout: 250, maxRetriesPerRequest: 0 },
});
limiter.on("error", () => {}); // each call reports it, and the client goes on connecting
await once(limiter, "ready", { signal: AbortSignal.timeout(1000) }).catch(() => {});

async function one(key, cost) {
  const call = new RateLimit("RL.TOKEN", [key, 100, 10, 1000, "COST", cost]);
  const [allowed, , , retryAfterMs] = await limiter.sendCommand(call);
  return [allowed, retryAfterMs];
}

/** The user's limit and the tenant's, all or none. The braces keep both keys in one slot. */
function both(tenant, user, cost) {
  const keys = [`rl:{${tenant}}:${user}`, `rl:{${tenant}}`];
  const policies = ["TOKEN", 10, 1, 1000, "COST", cost, "TOKEN", 100, 10, 1000, "COST", cost];
  return limiter.sendCommand(new RateLimit("RL.ALL", [2, ...keys, ...policies]));
}

/** HTTP status, headers, and why there was no judgement. */
async function check(call, ...words) {
  try {
    const [allowed, retryAfterMs] = await call(...words);
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
limiter.disconnect();
