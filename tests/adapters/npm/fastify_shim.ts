// Runs the tests that @fastify/rate-limit has for its own Redis store on the store of
// examples/adapters, and on a server at REDIS_PORT: loaded before each file of theirs.
import Module, { createRequire } from "node:module";
import type { Redis } from "ioredis";
import { redisRlStore } from "../../../examples/adapters/fastify-rate-limit/store.ts";

const require = createRequire(import.meta.url);
const ioredis = require("ioredis");
const port = Number(process.env.REDIS_PORT);

class OnPort extends ioredis.Redis {
  constructor(options: object) {
    super({ ...options, port });
  }
}

/** The plugin, with our store where they give it a client. */
const withStore = (plugin: Function) =>
  new Proxy(plugin, {
    apply(target, self, [app, { redis, nameSpace, ...options }]: [unknown, { redis?: Redis; nameSpace?: string }]) {
      if (!redis) return target.call(self, app, options);
      const sendCommand = (command: string, ...args: string[]) => redis.call(command, ...args);
      const store = redisRlStore({ sendCommand, timeoutMs: 10_000, ...(nameSpace && { prefix: nameSpace }) });
      return target.call(self, app, { ...options, store });
    },
  });

const loader = Module as unknown as { _load: (request: string, ...rest: unknown[]) => any };
const load = loader._load;
loader._load = (request, ...rest) => {
  const loaded = load(request, ...rest);
  if (request === "ioredis") return OnPort;
  return request === "../index" ? withStore(loaded) : loaded;
};
