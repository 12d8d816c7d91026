// The tests that the package of @fastify/rate-limit carries for its own Redis store, on ours.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Server } from "./server.ts";

const server = await Server.start();
const shim = new URL("fastify_shim.js", import.meta.url).href;
const suite = "node_modules/@fastify/rate-limit/test/redis-rate-limit.test.js";
const words = ["--test-reporter", "spec", "--import", shim, "--test", "--test-force-exit", suite];
const tests = spawn(process.execPath, words, {
  stdio: "inherit",
  env: { ...process.env, REDIS_PORT: `${server.port}` },
});
[process.exitCode] = await once(tests, "exit");
assert.ok((await server.figure("rl", /rl_fixed_admitted:(\d+)/)) > 20, "they ran on our store");
assert.equal(await server.figure("commandstats", /cmdstat_evalsha:calls=(\d+)/), 0, "and on it alone");
await server.end();
