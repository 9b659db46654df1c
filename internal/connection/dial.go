package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
)

// Dial connects to a broker of one engine.
type Dial func(ctx context.Context, access *Access) (broker.Engine, error)

// Engines are those that queues can be kept on.
func Engines() map[v1alpha1.Engine]Dial {
	return map[v1alpha1.Engine]Dial{v1alpha1.EngineNATS: dialNATS, v1alpha1.EngineAsynq: dialAsynq}
}

// clientName is the connection's name, for who looks at the broker.
const clientName = "yardmaster"

func dialNATS(ctx context.Context, access *Access) (broker.Engine, error) {
	o := jetstream.Options{Name: clientName, Credentials: access.Creds}
	if len(access.CA)+len(access.Certificate)+len(access.Key) > 0 || access.ServerName != "" {
		o.TLS = &jetstream.TLS{CA: access.CA, Certificate: access.Certificate, Key: access.Key, ServerName: access.ServerName}
	}
	var err error
	if o.URL, err = withUser(access); err != nil {
		return nil, err
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

// withUser is the URL, or each of several, with who we are.
func withUser(access *Access) (string, error) {
	var user *url.Userinfo
	switch {
	case access.Username != "":
		user = url.UserPassword(access.Username, access.Password)
	case access.Token != "":
		user = url.User(access.Token)
	default:
		return access.URL, nil
	}
	var all []string
	for one := range strings.SplitSeq(access.URL, ",") {
		if one = strings.TrimSpace(one); !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		parsed, err := url.Parse(one)
		if failure := (*url.Error)(nil); errors.As(err, &failure) { // it holds the URL itself
			return "", broker.Fail(broker.Invalid, "url is not one: %w", failure.Err)
		}
		parsed.User = user
		all = append(all, parsed.String())
	}
	return strings.Join(all, ","), nil
}

// withCause finds out why no server can be reached, which the client does not tell: it
// knocks at the first.
func withCause(ctx context.Context, err error, all string) error {
	first, _, _ := strings.Cut(all, ",")
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
