// go-redis: one decision per line "KEY COST" of standard input.
//
//	printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 go run go_redis.go
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func newLimiter(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	// A call that timed out may have been charged: sent again, it would be charged twice.
	options.MaxRetries = -1
	options.DialerRetries = 1 // a refused connection is an answer, too
	return redis.NewClient(options), nil
}

// check returns the HTTP status, the seconds of Retry-After (0: leave the header out), and why
// there was no judgement.
func check(ctx context.Context, limiter *redis.Client, key string, cost int64) (int, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	reply, err := limiter.Do(ctx, "RL.TOKEN", key, 100, 10, 1000, "COST", cost).Int64Slice()
	if err != nil {
		return 503, 0, err // or 200, if your policy is to let pass
	}
	allowed, retryAfterMs := reply[0] == 1, reply[3]
	switch {
	case allowed:
		return 200, 0, nil
	case retryAfterMs < 0: // costs more than the bucket holds: no wait helps
		return 429, 0, nil
	default:
		return 429, (retryAfterMs + 999) / 1000, nil
	}
}

func main() {
	limiter, err := newLimiter(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var key string
		var cost int64
		if _, err := fmt.Sscan(lines.Text(), &key, &cost); err != nil {
			log.Fatal(err)
		}
		status, retryAfter, err := check(context.Background(), limiter, key, cost)
		switch {
		case err != nil:
			fmt.Println(status, err)
		case retryAfter > 0:
			fmt.Println(status, "Retry-After:", retryAfter)
		default:
			fmt.Println(status)
		}
	}
}
