<?php
// phpredis: one decision per line "KEY COST" of standard input.
//
//     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 php phpredis.php
declare(strict_types=1);

function limiter(string $url): Redis
{
    ['host' => $host, 'port' => $port] = parse_url($url);
    $limiter = new Redis();
    // No persistent connection, no pause before a second try, and a time-out for each answer.
    $limiter->connect($host, $port, 0.25, null, 0, 0.25);
    return $limiter;
}

/** HTTP status, headers, and why there was no judgement. */
function check(string $key, int $cost = 1): array
{
    static $limiter = null;
    try {
        $limiter ??= limiter(getenv('REDIS_URL'));
        $reply = $limiter->rawCommand('RL.TOKEN', $key, 100, 10, 1000, 'COST', $cost);
        if ($reply === false) { // how an error reply shows
            throw new RedisException($limiter->getLastError());
        }
    } catch (RedisException $error) {
        $limiter = null; // a connection without an answer is of no use any more
        return [503, [], $error->getMessage()]; // or 200, if your policy is to let pass
    }
    [$allowed, , , $retryAfterMs] = $reply;
    if ($allowed) {
        return [200, [], ''];
    }
    if ($retryAfterMs < 0) { // costs more than the bucket holds: no wait helps
        return [429, [], ''];
    }
    return [429, ['Retry-After: ' . intdiv($retryAfterMs + 999, 1000)], ''];
}

while (($line = fgets(STDIN)) !== false) {
    [$key, $cost] = explode(' ', trim($line));
    [$status, $headers, $reason] = check($key, (int) $cost);
    echo implode(' ', [$status, ...$headers, $reason]), "\n";
}
