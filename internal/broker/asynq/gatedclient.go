package asynq

import (
	"context"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// gatedClient is the Redis client of the asynq server of a consumer. It intercepts two
// scripts: dequeueing waits for a request of the consumer, and settling a task is reported
// to its delivery.
//
// It recognizes the scripts by their keys, which asynq may change. The version of asynq is
// pinned, and tests of this package fail if a task is dequeued without a request.
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
	if len(keys) > 1 && keys[0] == pendingKey(g.consumer.queue) && keys[1] == pausedKey(g.consumer.queue) {
		return g.consumer.dequeueOnRequest(ctx, script)
	}
	if id := g.settledTaskID(keys); id != "" {
		// asynq retries with a context that has ended, if it could not store the result.
		return g.consumer.settleTask(context.WithoutCancel(ctx), id, script)
	}
	return script(ctx, g.UniversalClient)
}

// settledTaskID returns the task that a script with these keys settles.
func (g *gatedClient) settledTaskID(keys []string) (id string) {
	active := false
	for _, key := range keys {
		active = active || key == activeKey(g.consumer.queue)
		if rest, is := strings.CutPrefix(key, taskKey(g.consumer.queue, "")); is && rest != "" {
			id = rest
		}
	}
	if !active {
		return ""
	}
	return id
}

// localReply is the reply of a script that did not run on the server.
func localReply(ctx context.Context, value any, err error) *goredis.Cmd {
	cmd := goredis.NewCmd(ctx)
	cmd.SetVal(value)
	cmd.SetErr(err)
	return cmd
}

// errTaskNotActive is the reply of asynq's scripts for a task that is not active.
var errTaskNotActive = errors.New("NOT FOUND")

func isTaskNotActive(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), errTaskNotActive.Error())
}

// isUnknownScript reports that asynq will send the source of the script next.
func isUnknownScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }
