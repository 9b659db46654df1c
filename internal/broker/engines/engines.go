// Package engines connects to a broker by what its URL says it is.
package engines

import (
	"context"
	"strings"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/source"
)

// Access says how a broker is reached.
type Access struct {
	source.Access
	// Credentials are the content of a NATS credentials file.
	Credentials []byte
}

// Connect connects to a Redis or Valkey with asynq's queues, if that is what the URL says,
// and else to NATS, whose URLs may be without a scheme.
func Connect(ctx context.Context, access Access) (broker.Engine, error) {
	scheme, _, _ := strings.Cut(strings.TrimSpace(access.URL), "://")
	if scheme == "redis" || scheme == "rediss" {
		switch {
		case len(access.Credentials) > 0:
			return nil, broker.Fail(broker.Invalid, "credentials are those of NATS, and the url is that of Redis")
		case access.Token != "":
			return nil, broker.Fail(broker.Invalid, "a token is for NATS, and the url is that of Redis")
		}
		return known(asynq.Connect(ctx, access.Access))
	}
	return known(jetstream.Connect(ctx, jetstream.Options{
		URL: access.URL, Name: access.Name, Username: access.Username, Password: access.Password, Token: access.Token,
		Credentials: access.Credentials, TLS: access.TLS,
	}))
}

// known is an engine, or else nothing rather than an engine that is nil.
func known[E broker.Engine](engine E, err error) (broker.Engine, error) {
	if err != nil {
		return nil, err
	}
	return engine, nil
}
