// ioredis on a cluster: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 node ioredis_cluster.mjs
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Cluster, Command } from "ioredis";

// limiter.call() knows the key of built-in commands only: it would send others to any node, and
// two of three to the wrong one.
class RateLimit extends Command {
  getKeys() {
    return [this.args[0]];
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

/** HTTP status, headers, and why there was no judgement. */
async function check(key, cost = 1) {
  try {
    const [allowed, , , retryAfterMs] = await limiter.sendCommand(
      new RateLimit("RL.TOKEN", [key, 100, 10, 1000, "COST", cost]),
    );
    if (allowed) return { status: 200, headers: {} };
    // -1: costs more than the bucket holds, no wait helps
    const headers = retryAfterMs < 0 ? {} : { "Retry-After": Math.ceil(retryAfterMs / 1000) };
    return { status: 429, headers };
  } catch (error) {
    return { status: 503, headers: {}, reason: error.message }; // or 200: let pass
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [key, cost] = line.split(" ");
  const { status, headers, reason = "" } = await check(key, cost);
  console.log(status, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`), reason);
}
limiter.disconnect();
