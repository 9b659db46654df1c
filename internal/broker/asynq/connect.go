package asynq

import (
	"context"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

const (
	// requestPoolSize and blockingPoolSize are numbers of connections. A request that waits for the next task of a queue
	// occupies a connection for as long as it waits.
	requestPoolSize  = 20
	blockingPoolSize = 1000
	// minServerVersion is the first version in which a client can wait for a task without taking it.
	minServerVersion = "6.2"
)

// Engine is a connection to a Redis or Valkey server. See package broker.
type Engine struct {
	client         goredis.UniversalClient
	blockingClient goredis.UniversalClient
	inspector      *asynq.Inspector
	producer       *asynq.Client

	// disconnecting is closed by Disconnect, which then waits for the goroutines of background.
	disconnecting  chan struct{}
	disconnectOnce sync.Once
	background     sync.WaitGroup

	mu              sync.Mutex
	arrivalCounters map[string]*arrivalCounter
}

// Connect connects to a server or a cluster. The connection reconnects until Disconnect.
func Connect(ctx context.Context, access broker.Credentials) (broker.Engine, error) {
	switch {
	case access.Username != "":
	case len(access.NATSCredentials) > 0:
		return nil, broker.Errorf(broker.ClassInvalid, "a NATS credentials file cannot log in to Redis; use a username and a password")
	case access.Token != "":
		return nil, broker.Errorf(broker.ClassInvalid, "a token cannot log in to Redis; use a username and a password")
	case len(access.NKeySeed) > 0:
		return nil, broker.Errorf(broker.ClassInvalid, "an nkey cannot log in to Redis; use a username and a password")
	}
	if access.JetStreamDomain != "" || access.InboxPrefix != "" {
		return nil, broker.Errorf(broker.ClassInvalid, "jetStreamDomain and inboxPrefix are settings of NATS; Redis has neither")
	}
	e := &Engine{disconnecting: make(chan struct{}), arrivalCounters: map[string]*arrivalCounter{}}
	var err error
	if e.client, err = redisclient.NewClient(ctx, access, requestPoolSize); err != nil {
		return nil, err
	}
	if e.blockingClient, err = redisclient.NewClient(ctx, access, blockingPoolSize); err != nil {
		_ = e.client.Close()
		return nil, err
	}
	e.inspector, e.producer = asynq.NewInspectorFromRedisClient(e.client), asynq.NewClientFromRedisClient(e.client)
	if err := e.checkServer(ctx); err != nil {
		e.Disconnect()
		return nil, err
	}
	return e, nil
}

func (e *Engine) checkServer(ctx context.Context) error {
	info, err := e.client.Info(ctx, "server").Result()
	if err != nil {
		return redisclient.ClassifyError("asking for the server's version", err)
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	if !broker.IsVersionAtLeast(version, minServerVersion) {
		return broker.Errorf(broker.ClassInvalid, "the server's version is %q, must be at least %s", version, minServerVersion)
	}
	return nil
}

// Disconnect releases tasks that are not settled, and closes the connection.
func (e *Engine) Disconnect() {
	e.disconnectOnce.Do(func() {
		close(e.disconnecting)
		e.background.Wait()
		_ = e.blockingClient.Close()
		_ = e.client.Close()
	})
}

func (e *Engine) checkQueueExists(ctx context.Context, queue string) error {
	known, err := e.client.SIsMember(ctx, queuesKey, queue).Result()
	if err == nil && !known {
		err = queueNotFound(queue)
	}
	return err
}

func queueError(operation, queue string, err error) error {
	return redisclient.ClassifyError(operation+" the queue "+queue, err)
}

func queueNotFound(queue string) error {
	return broker.Errorf(broker.ClassNotFound, "asynq has no queue %s", queue)
}
