// Package dial connects to a broker. It is the only package that lists the engines.
package dial

import (
	"context"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// EngineName identifies an implementation of broker.Engine, as broker.engine of a Queue.
type EngineName string

// The names of the engines.
const (
	NATSEngine  EngineName = "NATS"
	AsynqEngine EngineName = "Asynq"
)

var engines = map[EngineName]func(context.Context, broker.Credentials) (broker.Engine, error){
	NATSEngine:  jetstream.Connect,
	AsynqEngine: asynq.Connect,
}

// IsSupported reports whether an engine of that name exists.
func IsSupported(name EngineName) bool {
	_, found := engines[name]
	return found
}

// EngineOf returns the engine for a URL: asynq for redis and rediss URLs, NATS for all others, which may have no scheme.
func EngineOf(url string) EngineName {
	switch scheme, _, _ := strings.Cut(strings.TrimSpace(url), "://"); scheme {
	case "redis", "rediss":
		return AsynqEngine
	}
	return NATSEngine
}

// Connect connects to a broker. The connection reconnects by itself, until Disconnect. Errors have a class.
func Connect(ctx context.Context, name EngineName, credentials broker.Credentials) (broker.Engine, error) {
	connect, found := engines[name]
	if !found {
		return nil, broker.Errorf(broker.ClassInvalid, "engine %q is not supported", name)
	}
	return connect(ctx, credentials)
}
