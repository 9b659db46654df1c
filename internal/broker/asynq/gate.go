package asynq

import (
	"context"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// gate is the connection of a lane's asynq server. Of all that goes through it, it looks
// at two scripts: the one that takes a task waits until the lane has been asked for one,
// and the ones that settle a task are told to whom it was delivered.
//
// It knows them by the keys that they are given, which are those of asynq's storage. Were
// asynq to change these, tasks would be taken before they are asked for, and the tests of
// this package fail.
type gate struct {
	goredis.UniversalClient
	lane *lane
}

// EvalSha runs a script that the server knows.
func (g *gate) EvalSha(ctx context.Context, sha string, keys []string, arguments ...any) *goredis.Cmd {
	return g.run(ctx, keys, func(ctx context.Context, s goredis.Scripter) *goredis.Cmd {
		return s.EvalSha(ctx, sha, keys, arguments...)
	})
}

// Eval runs a script.
func (g *gate) Eval(ctx context.Context, script string, keys []string, arguments ...any) *goredis.Cmd {
	return g.run(ctx, keys, func(ctx context.Context, s goredis.Scripter) *goredis.Cmd {
		return s.Eval(ctx, script, keys, arguments...)
	})
}

type run func(context.Context, goredis.Scripter) *goredis.Cmd

func (g *gate) run(ctx context.Context, keys []string, script run) *goredis.Cmd {
	if len(keys) > 1 && keys[0] == pendingOf(g.lane.queue) && keys[1] == pausedOf(g.lane.queue) {
		return g.lane.take(ctx, script)
	}
	if id := g.settled(keys); id != "" {
		// asynq says it again, if it could not be stored, with a context that is over by then.
		return g.lane.settle(context.WithoutCancel(ctx), id, script)
	}
	return script(ctx, g.UniversalClient)
}

// settled is the task that a script with these keys takes from those that are worked on.
func (g *gate) settled(keys []string) (id string) {
	active := false
	for _, key := range keys {
		active = active || key == activeOf(g.lane.queue)
		if rest, is := strings.CutPrefix(key, taskOf(g.lane.queue, "")); is && rest != "" {
			id = rest
		}
	}
	if !active {
		return ""
	}
	return id
}

// The answers that scripts give without the server's help.
func answer(ctx context.Context, value any, err error) *goredis.Cmd {
	cmd := goredis.NewCmd(ctx)
	cmd.SetVal(value)
	cmd.SetErr(err)
	return cmd
}

// errNotFound is what asynq's scripts say of a task that nobody works on.
var errNotFound = errors.New("NOT FOUND")

func notFound(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), errNotFound.Error())
}

// unknownScript tells that asynq will send the script itself next.
func unknownScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }
