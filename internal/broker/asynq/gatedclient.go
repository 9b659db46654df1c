package asynq

import (
	"context"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// gatedClient is the connection of a lane's asynq server. Of all that goes through it, it looks
// at two scripts: the one that takes a task waits until the lane has been asked for one,
// and the ones that settle a task are told to whom it was delivered.
//
// It knows them by the keys that they are given, which are those of asynq's storage. Were
// asynq to change these, tasks would be taken before they are asked for, and the tests of
// this package fail.
type gatedClient struct {
	goredis.UniversalClient
	consumer *taskConsumer
}

// EvalSha runs a script that the server knows.
func (g *gatedClient) EvalSha(ctx context.Context, sha string, keys []string, arguments ...any) *goredis.Cmd {
	return g.runScript(ctx, keys, func(ctx context.Context, s goredis.Scripter) *goredis.Cmd {
		return s.EvalSha(ctx, sha, keys, arguments...)
	})
}

// Eval runs a script.
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
		// asynq says it again, if it could not be stored, with a context that is over by then.
		return g.consumer.settleTask(context.WithoutCancel(ctx), id, script)
	}
	return script(ctx, g.UniversalClient)
}

// settledTaskID is the task that a script with these keys takes from those that are worked on.
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

// The answers that scripts give without the server's help.
func localReply(ctx context.Context, value any, err error) *goredis.Cmd {
	cmd := goredis.NewCmd(ctx)
	cmd.SetVal(value)
	cmd.SetErr(err)
	return cmd
}

// errTaskNotActive is what asynq's scripts say of a task that nobody works on.
var errTaskNotActive = errors.New("NOT FOUND")

func isTaskNotActive(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), errTaskNotActive.Error())
}

// isUnknownScript tells that asynq will send the script itself next.
func isUnknownScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }
