package client

import (
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

func TestLimitsOfARedisServerAreClassified(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t, dial.AsynqEngine)
	env.redis.RunCLI("CONFIG", "SET", "proto-max-bulk-len", "1mb")
	_, err := env.Enqueue(t.Context(), "orders", make([]byte, 2<<20))
	requireError(t, err, ErrPayloadTooLarge, "payload")
	results, _ := env.EnqueueMany(t.Context(), "orders", []Job{NewJob(make([]byte, 2<<20)), NewJob(nil)})
	requireError(t, results[0].Err, ErrPayloadTooLarge, "payload")
	if results[1].Err != nil {
		t.Error(results[1].Err)
	}
	env.redis.RunCLI("CONFIG", "SET", "maxmemory", "1")
	_, err = env.Enqueue(t.Context(), "orders", nil)
	requireError(t, err, ErrUnavailable, "")
	env.redis.RunCLI("CONFIG", "SET", "maxmemory", "0")
	env.enqueue("x")
}
