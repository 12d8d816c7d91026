// ioredis: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 node ioredis.mjs
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

/** HTTP status, headers, and why there was no judgement. */
async function check(key, cost = 1) {
  try {
    const [allowed, , , retryAfterMs] = await limiter.call("RL.TOKEN", key, 100, 10, 1000, "COST", cost);
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
