import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import rateLimit, { type RateLimitPluginOptions } from "@fastify/rate-limit";
import { fastify } from "fastify";
import { eventually, Server } from "../../../tests/adapters/npm/server.ts";
import { type Client, ioredis, nodeRedis } from "../send-command.ts";
import { redisRlStore, type StoreOptions } from "./store.ts";

const MINUTE = 60_000;
const PATIENT = 10_000; // a time-out for a busy machine

let server: Server;
let client: Client;
let prefixes = 0;

before(async () => {
  server = await Server.start();
  client = await ioredis(server.url);
});

after(async () => {
  client.close();
  await server.end();
});

const newPrefix = () => `rl:${prefixes++}:`;

/** An application with a key for all, and a limit of 2 a minute unless told otherwise. */
async function limited(options: RateLimitPluginOptions = {}, store: Partial<StoreOptions> = {}) {
  const app = fastify();
  await app.register(rateLimit, {
    max: 2,
    timeWindow: MINUTE,
    keyGenerator: () => "k",
    store: redisRlStore({ sendCommand: client.sendCommand, prefix: newPrefix(), timeoutMs: PATIENT, ...store }),
    ...options,
  });
  app.get("/", async () => "ok");
  return app;
}

type App = Awaited<ReturnType<typeof limited>>;

async function statuses(app: App, count: number, path = "/"): Promise<number[]> {
  const found = [];
  for (let n = 0; n < count; n++) found.push((await app.inject(path)).statusCode);
  return found;
}

test("a refused call is a 429 that says when to come back, and is not counted", async () => {
  const prefix = newPrefix();
  const app = await limited({}, { prefix });
  const admitted = await app.inject("/");
  assert.equal(admitted.statusCode, 200);
  assert.equal(admitted.headers["x-ratelimit-limit"], "2");
  assert.equal(admitted.headers["x-ratelimit-remaining"], "1");
  assert.equal(admitted.headers["x-ratelimit-reset"], "60");
  assert.deepEqual(await statuses(app, 4), [200, 429, 429, 429]);
  assert.equal((await app.inject("/")).headers["retry-after"], "60");
  assert.equal(await server.admin.get(`${prefix}k`), "2");
});

test("a refused call gives nothing back", async () => {
  const app = await limited();
  assert.deepEqual(await statuses(app, 6), [200, 200, 429, 429, 429, 429]);
});

test("of 50 callers at once 3 are admitted", async () => {
  for (const options of [{}, { ban: 100 }, { continueExceeding: true }, { exponentialBackoff: true }]) {
    const app = await limited({ max: 3, ...options });
    const answers = await Promise.all(Array.from({ length: 50 }, () => app.inject("/")));
    assert.equal(answers.filter(({ statusCode }) => statusCode === 200).length, 3, JSON.stringify(options));
  }
});

test("limits from a function, and a limit of 0", async () => {
  assert.deepEqual(await statuses(await limited({ max: async () => 1 }), 3), [200, 429, 429]);
  assert.deepEqual(await statuses(await limited({ max: 0 }), 2), [429, 429]);
  assert.deepEqual(await statuses(await limited({ keyGenerator: () => 42 }), 3), [200, 200, 429]);
});

test("a ban counts refused calls", async () => {
  const app = await limited({ max: 1, ban: 2 });
  assert.deepEqual(await statuses(app, 5), [200, 429, 429, 403, 403]);
});

test("the window of a caller who goes on moves", async () => {
  const prefix = newPrefix();
  const app = await limited({ max: 1, continueExceeding: true }, { prefix });
  await statuses(app, 1);
  await server.admin.pexpire(`${prefix}k`, 5000);
  const refused = await app.inject("/");
  assert.equal(refused.statusCode, 429);
  assert.equal(refused.headers["retry-after"], "60");
  assert.ok((await server.admin.pttl(`${prefix}k`)) > 50_000);
});

test("the window doubles with each further call, up to 100 years", async () => {
  const prefix = newPrefix();
  const app = await limited({ max: 1, exponentialBackoff: true }, { prefix });
  const waits = [];
  for (let n = 0; n < 5; n++) waits.push((await app.inject("/")).headers["x-ratelimit-reset"]);
  assert.deepEqual(waits, ["60", "60", "120", "240", "480"]);
  assert.ok((await server.admin.pttl(`${prefix}k`)) > 470_000);
  assert.deepEqual(await statuses(app, 60), Array(60).fill(429));
  assert.equal((await app.inject("/")).headers["retry-after"], "3153600000");
});

test("a route with a limit of its own counts for itself", async () => {
  const app = await limited({ max: 2 });
  app.get("/own", { config: { rateLimit: { max: 1, ban: 0 } } }, async () => "ok");
  assert.deepEqual(await statuses(app, 3, "/own"), [200, 403, 403]);
  assert.deepEqual(await statuses(app, 3), [200, 200, 429]);
});

test("a look takes nothing", async () => {
  const app = await limited({ global: false });
  const check = app.createRateLimit();
  app.get("/look", async (request) => check(request, { increment: false }));
  app.get("/take", async (request) => check(request));
  const remaining = async (path: string) => (await app.inject(path)).json().remaining;
  assert.equal(await remaining("/look"), 2);
  assert.equal(await remaining("/take"), 1);
  assert.equal(await remaining("/look"), 1);
  assert.equal(await remaining("/look"), 1);
});

test("an error of the server is the plugin's to judge, and changes nothing", async () => {
  for (const [command, ...value] of [
    ["LPUSH", "x"],
    ["SET", "0", "PX", "60000"],
    ["SET", "1"], // no TTL
  ] as const) {
    const prefix = newPrefix();
    await server.admin.call(command, `${prefix}k`, ...value);
    const dump = await server.admin.dumpBuffer(`${prefix}k`);
    assert.deepEqual(await statuses(await limited({}, { prefix }), 1), [500]);
    assert.deepEqual(await statuses(await limited({ skipOnError: true }, { prefix }), 3), [200, 200, 200]);
    assert.deepEqual(await server.admin.dumpBuffer(`${prefix}k`), dump);
  }
});

for (const connect of [ioredis, nodeRedis]) {
  test(`${connect.name}: a server that freezes, dies and comes back`, async () => {
    const own = await Server.start();
    const { sendCommand, close } = await connect(own.url);
    try {
      const patient = await limited({}, { sendCommand });
      const closed = await limited({}, { sendCommand, timeoutMs: 200 });
      const open = await limited({ skipOnError: true }, { sendCommand, timeoutMs: 100 });
      const started = Date.now();
      own.freeze();
      assert.match((await closed.inject("/")).body, /no answer within 200 ms/);
      assert.deepEqual(await statuses(open, 1), [200]);
      const elapsed = Date.now() - started;
      assert.ok(elapsed >= 290 && elapsed < PATIENT, `${elapsed} ms`);
      own.thaw();
      await own.kill();
      await eventually(async () => assert.doesNotMatch((await closed.inject("/")).body, /no answer/));
      assert.deepEqual(await statuses(closed, 1), [500]);
      assert.deepEqual(await statuses(open, 1), [200]);
      await own.start();
      await eventually(async () => assert.equal((await patient.inject("/")).headers["x-ratelimit-remaining"], "1"));
    } finally {
      close();
      await own.end();
    }
  });
}

test("a call stays refused where its window can't be moved", async () => {
  const sendCommand: StoreOptions["sendCommand"] = async (...words) => {
    if (words[0] === "PEXPIRE") throw new Error("NOPERM");
    return client.sendCommand(...words);
  };
  const app = await limited({ max: 1, continueExceeding: true, skipOnError: true }, { sendCommand });
  assert.deepEqual(await statuses(app, 3), [200, 429, 429]);
});

test("the time-out is 250 ms unless told otherwise", async () => {
  const app = await limited({}, { sendCommand: () => new Promise(() => {}), timeoutMs: undefined });
  assert.match((await app.inject("/")).body, /no answer within 250 ms/);
});

test("two processes share a limit", async () => {
  const prefix = newPrefix();
  const caller = `
    import { ioredis } from ${JSON.stringify(new URL("../send-command.js", import.meta.url))};
    import { redisRlStore } from ${JSON.stringify(new URL("store.js", import.meta.url))};
    const { sendCommand, close } = await ioredis("${server.url}");
    const store = new (redisRlStore({ sendCommand, prefix: "${prefix}", timeoutMs: ${PATIENT} }))({});
    const call = () => new Promise((done) => store.incr("k", (error, hits) => done(hits.current), ${MINUTE}, 30));
    const counts = await Promise.all(Array.from({ length: 50 }, call));
    console.log(counts.filter((current) => current <= 30).length);
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
  const prefix = newPrefix();
  const [lower, higher] = [await limited({ max: 5 }, { prefix }), await limited({ max: 10 }, { prefix })];
  const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => (n % 2 ? lower : higher).inject("/")));
  assert.equal(answers.filter(({ statusCode }) => statusCode === 200).length, 10);
  assert.deepEqual(await statuses(lower, 1), [429]);
});

test("the rights that the page names are enough", async () => {
  await server.admin.call(
    "ACL",
    "SETUSER",
    "limiter",
    "on",
    ">secret",
    "~rl:*",
    "+rl.fixed",
    "+rl.peek",
    "+pexpire",
  );
  const { sendCommand, close } = await ioredis(server.url.replace("//", "//limiter:secret@"));
  try {
    const prefix = newPrefix();
    const app = await limited({ max: 1, continueExceeding: true }, { sendCommand, prefix });
    assert.deepEqual(await statuses(app, 1), [200]);
    await server.admin.pexpire(`${prefix}k`, 5000);
    assert.deepEqual(await statuses(app, 1), [429]);
    assert.ok((await server.admin.pttl(`${prefix}k`)) > 50_000);
    await assert.rejects(sendCommand("GET", "rl:k"), /NOPERM/);
  } finally {
    close();
  }
});

test("the counts of the plugin's own Redis store are taken over", async () => {
  const prefix = newPrefix();
  const old = fastify();
  await old.register(rateLimit, {
    max: 2,
    timeWindow: MINUTE,
    keyGenerator: () => "k",
    redis: server.admin,
    nameSpace: prefix,
  });
  old.get("/", async () => "ok");
  assert.deepEqual(await statuses(old as unknown as App, 1), [200]);
  assert.deepEqual(await statuses(await limited({}, { prefix }), 2), [200, 429]);
});
