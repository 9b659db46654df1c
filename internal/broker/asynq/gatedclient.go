package asynq

import (
	"context"
	"errors"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// gatedClient is the Redis client of the asynq server of a consumer. It intercepts two kinds of scripts: the script that
// dequeues waits for a request of the consumer, and the result of a script that settles a task is passed to its delivery.
//
// It recognizes the scripts by their keys, which asynq may change. The version of asynq is pinned, and tests of this package
// fail if a task is dequeued without a request.
type gatedClient struct {
	goredis.UniversalClient
	consumer *taskConsumer
}

// EvalSha implements redis.Scripter.
func (g *gatedClient) EvalSha(ctx context.Context, sha string, keys []string, arguments ...any) *goredis.Cmd {
	return g.runScript(ctx, keys, func(ctx context.Context, s goredis.Scripter) *goredis.Cmd {
		return s.EvalSha(ctx, sha, keys, arguments...)
	})
}

// Eval implements redis.Scripter.
func (g *gatedClient) Eval(ctx context.Context, script string, keys []string, arguments ...any) *goredis.Cmd {
	return g.runScript(ctx, keys, func(ctx context.Context, s goredis.Scripter) *goredis.Cmd {
		return s.Eval(ctx, script, keys, arguments...)
	})
}

type scriptRunner func(context.Context, goredis.Scripter) *goredis.Cmd

func (g *gatedClient) runScript(ctx context.Context, keys []string, script scriptRunner) *goredis.Cmd {
	queue := g.consumer.queue
	if len(keys) > 1 && keys[0] == queueKey(queue, pendingList) && keys[1] == queueKey(queue, pausedFlag) {
		return g.consumer.dequeueOnRequest(ctx, script)
	}
	if slices.Contains(keys, queueKey(queue, activeList)) {
		for _, key := range slices.Backward(keys) {
			if id, isTask := strings.CutPrefix(key, taskKey(queue, "")); isTask && id != "" {
				// asynq retries with a context that has ended, if it could not store the result.
				return g.consumer.settleTask(context.WithoutCancel(ctx), id, script)
			}
		}
	}
	return script(ctx, g.UniversalClient)
}

// localReply is the reply of a script that did not run on the server.
func localReply(ctx context.Context, err error) *goredis.Cmd {
	cmd := goredis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// errTaskNotActive is the reply of asynq's scripts for a task that is not active.
var errTaskNotActive = errors.New("NOT FOUND")

// isUnknownScript reports that the server lacks a script, whose source asynq will send next.
func isUnknownScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }
