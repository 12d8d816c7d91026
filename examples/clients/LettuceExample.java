// Lettuce: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 java -cp ... LettuceExample.java

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;

public class LettuceExample {
    private static final Duration TIMEOUT = Duration.ofMillis(250);

    /** Lettuce needs a keyword for a command that it has no method for. */
    private enum RateLimit implements ProtocolKeyword {
        TOKEN("RL.TOKEN");

        private final byte[] bytes;

        RateLimit(String name) {
            bytes = name.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public byte[] getBytes() {
            return bytes;
        }
    }

    private final RedisClient client;
    private StatefulRedisConnection<String, String> connection;

    LettuceExample(String url) {
        RedisURI uri = RedisURI.create(url);
        uri.setTimeout(TIMEOUT);
        client = RedisClient.create(uri);
        client.setOptions(ClientOptions.builder()
                .socketOptions(SocketOptions.builder().connectTimeout(TIMEOUT).build())
                // A call that got no answer may have been charged: neither queued nor sent again,
                // it can't be charged when nobody wants the answer any more.
                .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                .replayFilter(command -> true)
                .build());
    }

    private synchronized StatefulRedisConnection<String, String> connection() {
        if (connection == null) {
            connection = client.connect(); // once connected, it reconnects by itself
        }
        return connection;
    }

    /** HTTP status, and Retry-After or why there was no judgement. */
    String check(String key, long cost) {
        List<Object> reply;
        try {
            reply = connection().sync().dispatch(
                    RateLimit.TOKEN,
                    new ArrayOutput<>(StringCodec.UTF8),
                    new CommandArgs<>(StringCodec.UTF8)
                            .addKey(key).add(100).add(10).add(1000).add("COST").add(cost));
        } catch (RedisException e) {
            return "503 " + e.getMessage(); // or 200, if your policy is to let pass
        }
        boolean allowed = (Long) reply.get(0) == 1;
        long retryAfterMs = (Long) reply.get(3);
        if (allowed) {
            return "200";
        }
        if (retryAfterMs < 0) { // costs more than the bucket holds: no wait helps
            return "429";
        }
        return "429 Retry-After: " + (retryAfterMs + 999) / 1000;
    }

    public static void main(String[] args) throws Exception {
        LettuceExample limiter = new LettuceExample(System.getenv("REDIS_URL"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            System.out.println(limiter.check(words[0], Long.parseLong(words[1])));
        }
        limiter.client.shutdown();
    }
}
