package asynq

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

const (
	// askingConnections are for requests, waitingConnections for those that wait for a
	// queue's next task: each of these has one for as long as it waits.
	askingConnections  = 20
	waitingConnections = 1000
	// oldest server that can be waited at without taking anything from it.
	oldestMajor, oldestMinor = 6, 2
)

// Engine is a connection to a Redis or Valkey server. See package broker.
type Engine struct {
	client    goredis.UniversalClient
	waiting   goredis.UniversalClient
	inspector *asynq.Inspector
	producer  *asynq.Client

	// closing is closed when the connection is to end; background is what must end first.
	closing    chan struct{}
	close      sync.Once
	background sync.WaitGroup

	mu       sync.Mutex
	arrivals map[string]*arrivals
}

var _ broker.Engine = (*Engine)(nil)

// Connect connects to a server, or to a cluster. A connection that is lost later is made
// anew, for as long as the Engine lives.
func Connect(ctx context.Context, access broker.Credentials) (broker.Engine, error) {
	switch {
	case access.Username != "":
	case len(access.NATSCredentials) > 0:
		return nil, broker.Errorf(broker.ClassInvalid, "a NATS credentials file cannot log in to Redis; use a username and a password")
	case access.Token != "":
		return nil, broker.Errorf(broker.ClassInvalid, "a token cannot log in to Redis; use a username and a password")
	}
	e := &Engine{closing: make(chan struct{}), arrivals: map[string]*arrivals{}}
	var err error
	if e.client, err = redisclient.NewClient(ctx, access, askingConnections); err != nil {
		return nil, err
	}
	if e.waiting, err = redisclient.NewClient(ctx, access, waitingConnections); err != nil {
		_ = e.client.Close()
		return nil, err
	}
	e.inspector, e.producer = asynq.NewInspectorFromRedisClient(e.client), asynq.NewClientFromRedisClient(e.client)
	if err := e.check(ctx); err != nil {
		e.Disconnect()
		return nil, err
	}
	return e, nil
}

// check asks the server whether it can do at all what is needed.
func (e *Engine) check(ctx context.Context) error {
	info, err := e.client.Info(ctx, "server").Result()
	if err != nil {
		return redisclient.ClassifyError("asking for the server's version", err)
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return broker.Errorf(broker.ClassInvalid, "the server's version is %q, which is none", version)
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return broker.Errorf(broker.ClassInvalid, "the server's version is %s, must be at least %d.%d", version, oldestMajor, oldestMinor)
	}
	return nil
}

// Disconnect ends the connection. Tasks that are still with handlers are given back.
func (e *Engine) Disconnect() {
	e.close.Do(func() {
		close(e.closing)
		e.background.Wait()
		_ = e.waiting.Close()
		_ = e.client.Close()
	})
}

// exists fails unless asynq knows the queue.
func (e *Engine) exists(ctx context.Context, queue string) error {
	known, err := e.client.SIsMember(ctx, allQueues, queue).Result()
	if err == nil && !known {
		err = missing(queue)
	}
	return err
}

func missing(queue string) error {
	return broker.Errorf(broker.ClassNotFound, "asynq has no queue %s", queue)
}

// blockFor waits until there is a task to take, for at most that long, without taking it.
// It moves the oldest task from the end of the list to the same end, which changes nothing.
func (e *Engine) blockFor(ctx context.Context, queue string, wait time.Duration) (bool, error) {
	err := e.waiting.Do(ctx, "blmove", pendingOf(queue), pendingOf(queue), "right", "right", wait.Seconds()).Err()
	if err == goredis.Nil { //nolint:errorlint // it is never wrapped
		return false, nil
	}
	return err == nil, err
}
