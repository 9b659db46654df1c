// Package engines connects to a broker by what its URL says it is.
package engines

import (
	"context"
	"strings"

	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// Access says how a broker is reached.
type Access struct {
	source.Access
	// Credentials are the content of a NATS credentials file.
	Credentials []byte
	// Now tells what holds by now, for connections that are made anew: a login may change
	// while there is one; nil: what stands here.
	Now func() (Access, error)
}

// Connect connects to a Redis or Valkey with asynq's queues, if that is what the URL says,
// and else to NATS, whose URLs may be without a scheme.
func Connect(ctx context.Context, access Access) (broker.Engine, error) {
	scheme, _, _ := strings.Cut(strings.TrimSpace(access.URL), "://")
	if scheme == "redis" || scheme == "rediss" {
		switch {
		case len(access.Credentials) > 0:
			return nil, broker.Errorf(broker.ClassInvalid, "credentials are those of NATS, and the url is that of Redis")
		case access.Token != "":
			return nil, broker.Errorf(broker.ClassInvalid, "a token is for NATS, and the url is that of Redis")
		}
		access.Access.Refresh = access.login()
		return known(asynq.Connect(ctx, access.Access))
	}
	options := access.options()
	if now := access.Now; now != nil {
		options.Now = func() (jetstream.Options, error) {
			access, err := now()
			return access.options(), err
		}
	}
	return known(jetstream.Connect(ctx, options))
}

func (a *Access) options() jetstream.Options {
	return jetstream.Options{
		URL: a.URL, Name: a.Name, Username: a.Username, Password: a.Password, Token: a.Token,
		Credentials: a.Credentials, TLS: a.TLS,
	}
}

// login tells the name and the password that hold by now; nil, if they are not asked for.
func (a *Access) login() func() (source.Access, error) {
	if a.Now == nil {
		return nil
	}
	return func() (source.Access, error) {
		access, err := a.Now()
		return access.Access, err
	}
}

// known is an engine, or else nothing rather than an engine that is nil.
func known[E broker.Engine](engine E, err error) (broker.Engine, error) {
	if err != nil {
		return nil, err
	}
	return engine, nil
}
