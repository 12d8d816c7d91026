import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Server as Listener } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import express, { type Request, type Response } from "express";
import { type Options, rateLimit } from "express-rate-limit";
import { slowDown } from "express-slow-down";
import { Hono } from "hono";
import { rateLimiter } from "hono-rate-limiter";
import { RedisStore } from "rate-limit-redis";
import { eventually, Server, startCluster } from "../../../tests/adapters/npm/server.ts";
import * as clients from "../send-command.ts";
import * as olderClients from "../send-command-5.ts"; // the same with the major version 5 of both
import { RedisRlStore, type StoreOptions } from "./store.ts";

const MINUTE = 60_000;
const PATIENT = 10_000; // a time-out for a busy machine

let server: Server;
let client: clients.Client;
let prefixes = 0;
const listeners: Listener[] = [];

before(async () => {
  server = await Server.start();
  client = await clients.ioredis(server.url);
});

after(async () => {
  for (const listener of listeners) listener.close();
  client.close();
  await server.end();
});

/** A store with keys of its own. */
function newStore(options: Partial<StoreOptions> = {}): RedisRlStore {
  return new RedisRlStore({
    sendCommand: client.sendCommand,
    prefix: `rl:${prefixes++}:`,
    timeoutMs: PATIENT,
    ...options,
  });
}

interface App {
  get: (path?: string) => Promise<globalThis.Response>;
  statuses: (count: number, path?: string) => Promise<number[]>;
}

/** An application behind the middleware. It answers what its path says, "/500" for instance. */
async function listen(middleware: express.RequestHandler): Promise<App> {
  const app = express();
  app.use(middleware);
  app.get("/:status", (request, response) => void response.sendStatus(Number(request.params.status)));
  app.use((error: Error, _request: Request, response: Response, _next: express.NextFunction) => {
    response.status(503).send(error.message);
  });
  const listener = app.listen(0, "127.0.0.1");
  listeners.push(listener);
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  const get = (path = "/200") => fetch(`http://127.0.0.1:${port}${path}`);
  return {
    get,
    async statuses(count, path) {
      const found = [];
      for (let n = 0; n < count; n++) found.push((await get(path)).status);
      return found;
    },
  };
}

/** The middleware with a key for all, quiet, and a limit of 2 a minute unless told otherwise. */
async function limited(store: RedisRlStore, options: Partial<Options> = {}): Promise<App> {
  const quiet = { error: () => {}, warn: () => {} };
  return listen(
    rateLimit({ windowMs: MINUTE, limit: 2, store, keyGenerator: () => "k", logger: quiet, ...options }),
  );
}

const policy = (limit: unknown, options = {}) => ({ windowMs: MINUTE, limit, ...options });

for (const [version, library] of [
  ["newest", clients],
  ["5", olderClients],
] as const) {
  for (const name of ["ioredis", "nodeRedis"] as const) {
    test(`${name}, version ${version}: every method, a server that freezes, dies and comes back`, async () => {
      const own = await Server.start();
      const { sendCommand, close } = await library[name](own.url);
      try {
        const store = new RedisRlStore({ sendCommand, timeoutMs: PATIENT });
        const hasty = new RedisRlStore({ sendCommand, timeoutMs: 100 });
        hasty.init(policy(2));
        store.init(policy(2));
        const near = (time: Date | undefined) => assert.ok(Math.abs(time!.getTime() - Date.now() - MINUTE) < 5000);
        assert.equal(await store.get("k"), undefined);
        for (const totalHits of [1, 2, 3, 3]) {
          const hits = await store.increment("k");
          assert.equal(hits.totalHits, totalHits);
          near(hits.resetTime);
        }
        assert.equal(await own.admin.get("rl:fixed:k"), "2", "a refused call is not counted");
        await store.decrement("k");
        const peeked = await store.get("k");
        assert.equal(peeked?.totalHits, 1);
        near(peeked?.resetTime);
        await store.resetKey("k");
        assert.equal(await own.admin.exists("rl:fixed:k"), 0);

        own.freeze();
        const started = Date.now();
        await assert.rejects(hasty.increment("frozen"), /no answer within 100 ms/);
        assert.ok(Date.now() - started < PATIENT);
        own.thaw();
        await eventually(() => store.increment("k"));

        await own.kill();
        await eventually(() =>
          assert.rejects(store.increment("dead"), (error: Error) => !/no answer/.test(error.message)),
        );
        await own.start();
        const back = await eventually(() => store.increment("back"));
        assert.equal(back.totalHits, 1, "no call was kept and sent later");
        assert.equal(await own.admin.exists("rl:fixed:dead"), 0);
      } finally {
        close();
        await own.end();
      }
    });
  }
}

describe("in a cluster", () => {
  let nodes: Server[];
  before(async () => void (nodes = await startCluster()));
  after(() => Promise.all(nodes.map((node) => node.end())));

  for (const [version, library] of [
    ["newest", clients],
    ["5", olderClients],
  ] as const) {
    for (const name of ["ioredisCluster", "nodeRedisCluster"] as const) {
      test(`${name}, version ${version}: each call goes to the node of its key`, async () => {
        const { sendCommand, close } = await library[name](nodes[0]!.url);
        try {
          const store = newStore({ sendCommand });
          store.init(policy(2));
          const redirects = async () => {
            const counts = nodes.map((node) => node.figure("errorstats", /errorstat_MOVED:count=(\d+)/));
            return (await Promise.all(counts)).reduce((sum, count) => sum + count);
          };
          const before = await redirects();
          for (let n = 0; n < 30; n++) {
            assert.equal((await store.increment(`k${n}`)).totalHits, 1);
            await store.decrement(`k${n}`);
            assert.equal(await store.get(`k${n}`), undefined);
            await store.resetKey(`k${n}`);
          }
          assert.equal(await redirects(), before);
        } finally {
          close();
        }
      });
    }
  }
});

test("a refused call is a 429 that says when to come back", async () => {
  const app = await limited(newStore(), { standardHeaders: "draft-8", legacyHeaders: false });
  assert.deepEqual(await app.statuses(2), [200, 200]);
  const refused = await app.get();
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("retry-after"), "60");
  assert.match(refused.headers.get("ratelimit")!, /r=0; t=60/);
});

test("of 50 callers at once 3 are admitted", async () => {
  for (const options of [{}, { limit: () => 3 }, { skipFailedRequests: true }]) {
    const app = await limited(newStore(), { limit: 3, ...options });
    const answers = await Promise.all(Array.from({ length: 50 }, () => app.get()));
    assert.equal(answers.filter(({ status }) => status === 200).length, 3, JSON.stringify(options));
  }
});

test("a refused call gives nothing back", async () => {
  const app = await limited(newStore(), { skipFailedRequests: true });
  assert.deepEqual(await app.statuses(3, "/500"), [500, 500, 500]); // each is given back
  assert.deepEqual(await app.statuses(8), [200, 200, 429, 429, 429, 429, 429, 429]);
});

test("successful calls are given back where the options say so", async () => {
  const app = await limited(newStore(), { skipSuccessfulRequests: true });
  assert.deepEqual(await app.statuses(5), [200, 200, 200, 200, 200]);
  assert.deepEqual(await app.statuses(4, "/401"), [401, 401, 429, 429]);
  assert.deepEqual(await app.statuses(1), [429]);
});

test("limits that only the middleware knows", async () => {
  for (const limit of [() => 2, 2.5]) {
    const app = await limited(newStore(), { limit });
    assert.deepEqual(await app.statuses(4), [200, 200, 429, 429]);
  }
  const none = await limited(newStore(), { limit: 0 });
  assert.deepEqual(await none.statuses(2), [429, 429]);
});

test("without a limit to decide on, refused calls are counted too", async () => {
  for (const options of [policy(() => 2), policy(0), policy(2, { skipFailedRequests: true })]) {
    const store = newStore();
    store.init(options);
    for (const totalHits of [1, 2, 3, 4]) assert.equal((await store.increment("k")).totalHits, totalHits);
    assert.equal((await store.get("k"))?.totalHits, 4);
  }
});

test("an error of the server is the middleware's to judge, and changes nothing", async () => {
  const states = [
    { value: ["LPUSH", "x"], error: /WRONGTYPE/ },
    { value: ["SET", "0"], error: /INVALIDSTATE/ },
  ];
  for (const { value, error } of states) {
    const store = newStore();
    const closed = await limited(store);
    const open = await limited(newStore({ prefix: store.prefix }), { passOnStoreError: true });
    await server.admin.call(value[0]!, `${store.prefix}k`, value[1]!);
    const dump = await server.admin.dumpBuffer(`${store.prefix}k`);
    const failed = await closed.get();
    assert.equal(failed.status, 503);
    assert.match(await failed.text(), error);
    assert.deepEqual(await open.statuses(3), [200, 200, 200]);
    assert.deepEqual(await server.admin.dumpBuffer(`${store.prefix}k`), dump);
  }
});

test("a frozen server holds a request no longer than the time-out", async () => {
  const own = await Server.start();
  const { sendCommand, close } = await clients.ioredis(own.url);
  const closed = await limited(newStore({ sendCommand, timeoutMs: 200 }));
  const open = await limited(newStore({ sendCommand, timeoutMs: 100 }), { passOnStoreError: true });
  try {
    own.freeze();
    const started = Date.now();
    assert.deepEqual(await closed.statuses(1), [503]);
    assert.deepEqual(await open.statuses(1), [200]);
    const elapsed = Date.now() - started;
    assert.ok(elapsed >= 290 && elapsed < PATIENT, `${elapsed} ms`);
  } finally {
    close();
    await own.end();
  }
});

test("the time-out is 250 ms unless told otherwise", async () => {
  const store = new RedisRlStore({ sendCommand: () => new Promise(() => {}) });
  store.init(policy(2));
  await assert.rejects(store.increment("k"), /no answer within 250 ms/);
});

test("two processes share a limit", async () => {
  const prefix = `rl:${prefixes++}:`;
  const caller = `
    import { ioredis } from ${JSON.stringify(new URL("../send-command.js", import.meta.url))};
    import { RedisRlStore } from ${JSON.stringify(new URL("store.js", import.meta.url))};
    const { sendCommand, close } = await ioredis("${server.url}");
    const store = new RedisRlStore({ sendCommand, prefix: "${prefix}", timeoutMs: ${PATIENT} });
    store.init({ windowMs: ${MINUTE}, limit: 30 });
    const hits = await Promise.all(Array.from({ length: 50 }, () => store.increment("k")));
    console.log(hits.filter(({ totalHits }) => totalHits <= 30).length);
    close();`;
  const admitted = [0, 1].map(async () => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", caller], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [output] = await once(child.stdout, "data");
    return Number(output);
  });
  const [one, other] = await Promise.all(admitted);
  assert.equal(one! + other!, 30);
});

test("a limit that changes under load admits no more than the higher one", async () => {
  const lower = newStore();
  const higher = newStore({ prefix: lower.prefix });
  lower.init(policy(5));
  higher.init(policy(10));
  const calls = Array.from({ length: 50 }, (_, n) => [n % 2 ? lower : higher, n % 2 ? 5 : 10] as const);
  const admitted = await Promise.all(
    calls.map(async ([store, limit]) => ((await store.increment("k")).totalHits <= limit ? limit : 0)),
  );
  assert.equal(admitted.filter((limit) => limit > 0).length, 10);
  assert.ok(admitted.filter((limit) => limit === 5).length <= 5);
  assert.equal((await lower.increment("k")).totalHits, 6, "refused under the lower limit");
});

test("the rights that the page names are enough", async () => {
  const rights = ["+rl.fixed", "+rl.token", "+rl.slide", "+rl.peek", "+del"];
  await server.admin.call("ACL", "SETUSER", "limiter", "on", ">secret", "~rl:*", ...rights);
  const { sendCommand, close } = await clients.ioredis(server.url.replace("//", "//limiter:secret@"));
  try {
    for (const algorithm of ["FIXED", "TOKEN", "SLIDE"] as const) {
      const store = newStore({ sendCommand, algorithm });
      store.init(policy(2));
      await store.increment("k");
      assert.equal((await store.get("k"))?.totalHits, 1);
      await store.decrement("k");
      await store.resetKey("k");
    }
    await assert.rejects(sendCommand("GET", "rl:k"), /NOPERM/);
  } finally {
    close();
  }
});

test("the counts of rate-limit-redis are taken over, but not its 0", async () => {
  const prefix = `rl:${prefixes++}:`;
  const old = new RedisStore({ sendCommand: client.sendCommand as never, prefix });
  await old.init(policy(2) as Options);
  await old.increment("some");
  await old.increment("none");
  await old.decrement("none");
  assert.equal(await server.admin.get(`${prefix}none`), "0");

  const same = newStore({ prefix });
  same.init(policy(2));
  assert.equal((await same.increment("some")).totalHits, 2);
  await assert.rejects(same.increment("none"), /INVALIDSTATE/);
  await assert.rejects(same.increment("none"), /INVALIDSTATE/, "until it expires");
  await same.resetKey("none");
  assert.equal((await same.increment("none")).totalHits, 1);

  const own = new RedisRlStore({ sendCommand: client.sendCommand });
  assert.notEqual(own.prefix, old.prefix);
});

test("a bucket tells when the next call is admitted", async () => {
  const store = newStore({ algorithm: "TOKEN" });
  store.init(policy(6)); // a token in 10 seconds
  for (const totalHits of [1, 2, 3, 4, 5, 6, 7]) assert.equal((await store.increment("k")).totalHits, totalHits);
  const { resetTime } = await store.increment("k");
  const wait = resetTime.getTime() - Date.now();
  assert.ok(wait > 5_000 && wait <= 10_000, `${wait}`);
  assert.equal((await store.get("k"))?.totalHits, 6);
  await store.decrement("k");
  assert.equal((await store.increment("k")).totalHits, 6);
});

test("a sliding window counts", async () => {
  const store = newStore({ algorithm: "SLIDE" });
  store.init(policy(2));
  for (const totalHits of [1, 2, 3]) assert.equal((await store.increment("k")).totalHits, totalHits);
});

test("each algorithm has keys of its own", () => {
  const { sendCommand } = client;
  const prefixes = (["FIXED", "TOKEN", "SLIDE"] as const).map(
    (algorithm) => new RedisRlStore({ sendCommand, algorithm }).prefix,
  );
  assert.deepEqual(prefixes, ["rl:fixed:", "rl:token:", "rl:slide:"]);
});

test("a bucket and a sliding window need a limit that the server can decide on", async () => {
  for (const algorithm of ["TOKEN", "SLIDE"] as const) {
    const store = newStore({ algorithm });
    assert.throws(() => store.init(policy(() => 2)), /whole number/);
    assert.throws(() => store.init(policy(2, { skipFailedRequests: true })), /skip option/);
    await assert.rejects(store.increment("k"), /refused/); // where the middleware logged the error and went on
  }
});

test("express-slow-down delays the more, the more calls there are", async () => {
  const used: [number, number][] = [];
  const middleware = slowDown({
    windowMs: MINUTE,
    delayAfter: 2,
    delayMs: (hits) => (hits - 2) * 10,
    store: newStore(),
    keyGenerator: () => "k",
  });
  const app = await listen((request, response, next) =>
    middleware(request, response, () => {
      const { used: hits, delay } = (request as unknown as { slowDown: { used: number; delay: number } }).slowDown;
      used.push([hits, delay]);
      next();
    }),
  );
  assert.deepEqual(await app.statuses(4), [200, 200, 200, 200]);
  assert.deepEqual(used, [
    [1, 0],
    [2, 0],
    [3, 10],
    [4, 20],
  ]);
});

test("hono-rate-limiter limits, and gives failed calls back", async () => {
  const statuses = async (options: { skipFailedRequests?: boolean }, paths: string[]) => {
    const app = new Hono();
    app.use(rateLimiter({ windowMs: MINUTE, limit: 2, store: newStore(), keyGenerator: () => "k", ...options }));
    app.get("/200", (c) => c.text("ok"));
    app.get("/400", (c) => c.text("failed", 400));
    const found = [];
    for (const path of paths) found.push((await app.request(path)).status);
    return found;
  };
  assert.deepEqual(await statuses({}, ["/400", "/200", "/200", "/200"]), [400, 200, 429, 429]);
  const paths = ["/400", "/400", "/400", ...Array(6).fill("/200")];
  assert.deepEqual(
    await statuses({ skipFailedRequests: true }, paths),
    [400, 400, 400, 200, 200, 429, 429, 429, 429],
  );
});
