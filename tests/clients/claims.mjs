// What the README says of Node clients beside the examples, for tests/clients/run to check.
//
//     node claims.mjs numbers LIBRARY URL              the largest limits that it misreads
//     node claims.mjs named|declared LIBRARY URL [cluster]
//
// The last is 100 calls with a keyPrefix, either by the command's name or by one declared to the
// library, which then knows where the key is.
const [what, library, url, cluster] = process.argv.slice(2);
const client = await import(library);

const LUA = "return redis.call('RL.TOKEN', KEYS[1], unpack(ARGV))";
const token = {
  parseCommand(parser, key, ...policy) {
    parser.push("RL.TOKEN");
    parser.pushKey(key);
    parser.push(...policy);
  },
  transformReply: undefined,
};

async function ioredis() {
  const options = { keyPrefix: "app:" };
  const redis = cluster ? new client.Cluster([url], options) : new client.Redis(url, options);
  redis.defineCommand("rlToken", { numberOfKeys: 1, lua: LUA });
  return {
    byName: (...words) => redis.call(...words),
    declared: (key, ...policy) => redis.rlToken(key, ...policy),
    end: () => redis.disconnect(),
  };
}

async function nodeRedis() {
  const options = { keyPrefix: "app:", modules: { rl: { token } } };
  const redis = cluster
    ? client.createCluster({ rootNodes: [{ url }], ...options })
    : client.createClient({ url, ...options });
  await redis.connect();
  return {
    byName: (...words) => (cluster ? redis.sendCommand(words[1], false, words) : redis.sendCommand(words)),
    declared: (key, ...policy) => redis.rl.token(key, ...policy),
    end: () => redis.destroy(),
  };
}

const { byName, declared, end } = await (library === "ioredis" ? ioredis() : nodeRedis());
if (what === "named") {
  for (let n = 0; n < 100; n++) await byName("RL.TOKEN", `key:${n}`, "100", "10", "1000");
} else if (what === "declared") {
  for (let n = 0; n < 100; n++) await declared(`key:${n}`, "100", "10", "1000");
} else {
  const misread = [];
  for (let limit = 2n ** 53n - 100n; limit < 2n ** 53n; limit++) {
    const [, read] = await byName("RL.PEEK", "absent", "FIXED", String(limit), "1000");
    if (BigInt(read) !== limit) misread.push(limit);
  }
  const [, recommended] = await byName("RL.PEEK", "absent", "FIXED", "9000000000000000", "1000");
  console.log(recommended, misread.length, String(misread[0] ?? ""));
}
end();
