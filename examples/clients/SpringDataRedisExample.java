// Spring Data Redis: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 java -cp ... SpringDataRedisExample.java
//
// With Lettuce, its default driver, Spring's execute(command) takes the reply of a command that it
// doesn't know for one string, not for an array of integers. From a script it reads such an array,
// so this one-line script does nothing but call the command.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.SocketOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import org.springframework.dao.DataAccessException;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.core.script.RedisScript;

public class SpringDataRedisExample {
    @SuppressWarnings("rawtypes")
    private static final RedisScript<List> RL_TOKEN = new DefaultRedisScript<>(
            "return redis.call('RL.TOKEN', KEYS[1], unpack(ARGV))", List.class);

    private final StringRedisTemplate redis;

    SpringDataRedisExample(LettuceConnectionFactory connections) {
        redis = new StringRedisTemplate(connections);
    }

    /** HTTP status, and Retry-After or why there was no judgement. */
    @SuppressWarnings("unchecked")
    String check(String key, long cost) {
        List<Long> reply;
        try {
            reply = redis.execute(
                    RL_TOKEN, List.of(key), "100", "10", "1000", "COST", String.valueOf(cost));
        } catch (DataAccessException e) {
            return "503 " + e.getMostSpecificCause().getMessage(); // or 200: let pass
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

    /** What Spring Boot makes of spring.data.redis.url, .timeout and .connect-timeout, and more. */
    private static LettuceConnectionFactory connections(String url) {
        Duration timeout = Duration.ofMillis(250);
        LettuceConnectionFactory connections = new LettuceConnectionFactory(
                LettuceConnectionFactory.createRedisConfiguration(url),
                LettuceClientConfiguration.builder()
                        .commandTimeout(timeout)
                        .clientOptions(ClientOptions.builder()
                                .socketOptions(SocketOptions.builder().connectTimeout(timeout).build())
                                // Neither queued nor sent again: see LettuceExample.
                                .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                                .replayFilter(command -> true)
                                .build())
                        .build());
        connections.afterPropertiesSet();
        connections.start();
        return connections;
    }

    public static void main(String[] args) throws Exception {
        LettuceConnectionFactory connections = connections(System.getenv("REDIS_URL"));
        SpringDataRedisExample limiter = new SpringDataRedisExample(connections);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] words = line.split(" ");
            System.out.println(limiter.check(words[0], Long.parseLong(words[1])));
        }
        connections.destroy();
    }
}
