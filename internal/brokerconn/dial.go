package brokerconn

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// DialFunc connects to a broker of one engine.
type DialFunc func(ctx context.Context, access *Access) (broker.Engine, error)

// Engines are those that queues can be kept on.
func Engines() map[v1alpha1.Engine]DialFunc {
	return map[v1alpha1.Engine]DialFunc{v1alpha1.EngineNATS: dialNATS, v1alpha1.EngineAsynq: dialAsynq}
}

// clientName is the connection's name, for who looks at the broker.
const clientName = "yardmaster"

func dialNATS(ctx context.Context, access *Access) (broker.Engine, error) {
	o := jetstream.Options{
		URL: access.URL, Name: clientName, Username: access.Username, Password: access.Password, Token: access.Token,
		Credentials: access.Creds, TLS: access.tls(),
	}
	engine, err := jetstream.Connect(ctx, o)
	if broker.ClassOf(err) == broker.Unreachable {
		return nil, withCause(ctx, err, o.URL)
	}
	if err != nil {
		return nil, err // not the typed nil
	}
	return engine, nil
}

// withCause finds out why no server can be reached, which the client does not tell: it
// knocks at the first.
func withCause(ctx context.Context, err error, all string) error {
	first, _, _ := strings.Cut(all, ",")
	if !strings.Contains(first, "://") {
		first = "nats://" + first
	}
	parsed, badURL := url.Parse(first)
	if badURL != nil || parsed.Hostname() == "" {
		return err
	}
	conn, cause := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), defaultPort)))
	if cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	_ = conn.Close() // it is there after all, and something else is wrong
	return err
}

const defaultPort = "4222"
