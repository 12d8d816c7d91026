// Jedis: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 java -cp ... JedisExample.java

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.JedisURIHelper;
import redis.clients.jedis.util.SafeEncoder;

public class JedisExample {
    private static final ProtocolCommand RL_TOKEN = () -> SafeEncoder.encode("RL.TOKEN");

    private final RedisClient redis;

    JedisExample(URI uri) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxWait(Duration.ofMillis(250));
        redis = RedisClient.builder()
                .hostAndPort(JedisURIHelper.getHostAndPort(uri))
                .clientConfig(DefaultJedisClientConfig.builder(uri).timeoutMillis(250).build())
                .poolConfig(pool)
                .build();
    }

    /** HTTP status, and Retry-After or why there was no judgement. */
    @SuppressWarnings("unchecked")
    String check(String key, long cost) {
        List<Long> reply;
        try {
            // Before Jedis 7.4: sendCommand(key, RL_TOKEN, key, "100", "10", "1000", ...)
            reply = (List<Long>) redis.executeCommand(new CommandArguments(RL_TOKEN)
                    .key(key).add(100).add(10).add(1000).add("COST").add(cost));
        } catch (JedisException e) {
            return "503 " + e.getMessage(); // or 200, if your policy is to let pass
        }
        boolean allowed = reply.get(0) == 1;
        long retryAfterMs = reply.get(3);
        if (allowed) {
            return "200";
        }
        if (retryAfterMs < 0) { // costs more than the bucket holds: no wait helps
            return "429";
        }
        return "429 Retry-After: " + (retryAfterMs + 999) / 1000;
    }

    public static void main(String[] args) throws Exception {
        JedisExample limiter = new JedisExample(URI.create(System.getenv("REDIS_URL")));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            System.out.println(limiter.check(words[0], Long.parseLong(words[1])));
        }
        limiter.redis.close();
    }
}
