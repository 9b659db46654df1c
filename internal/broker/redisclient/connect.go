package redisclient

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	dialTimeout = 5 * time.Second
	// answerTimeout is how long a request is waited for, beyond the time that it asks the
	// server to wait.
	answerTimeout = 5 * time.Second
)

// What the library would write by itself, its callers get as errors, and say in their own
// way.
func init() { logging.Disable() }

// NewClient connects to a server, or with several URLs, with commas between, to the cluster
// they are of. A connection that is lost later is made anew. At most pool connections are
// open at a time.
func NewClient(ctx context.Context, access broker.Credentials, pool int) (redis.UniversalClient, error) {
	options, err := optionsOf(&access)
	if err != nil {
		return nil, err
	}
	if access.Refresh != nil {
		options.CredentialsProvider = loginOf(&access, options.Username, options.Password)
	}
	options.PoolSize = pool
	client := redis.NewUniversalClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, ClassifyError("connecting", err)
	}
	return client, nil
}

// loginOf tells the name and the password that hold by now: those from before, where that
// cannot be read, as while their files are replaced.
func loginOf(access *broker.Credentials, name, password string) func() (name, password string) {
	var mu sync.Mutex
	return func() (string, string) {
		mu.Lock()
		defer mu.Unlock()
		now, err := access.Refresh()
		if err != nil {
			return name, password
		}
		first, _, _ := strings.Cut(now.URL, ",")
		if parsed, err := broker.ParseURL(first, "redis", "rediss"); err == nil {
			name, password = now.UserOf(parsed)
		}
		return name, password
	}
}

func optionsOf(access *broker.Credentials) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		ClientName:            nameOf(access.Name),
		DialTimeout:           dialTimeout,
		ReadTimeout:           answerTimeout,
		WriteTimeout:          answerTimeout,
		ContextTimeoutEnabled: true,
		// What may have been carried out is not to be carried out again: who asks knows best
		// what to do then.
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	secure := false
	for i, one := range strings.Split(access.URL, ",") {
		parsed, err := broker.ParseURL(one, "redis", "rediss")
		if err != nil {
			return nil, err
		}
		if i > 0 && secure != (parsed.Scheme == "rediss") {
			return nil, broker.Errorf(broker.ClassInvalid, "url has servers with TLS (rediss) and without (redis)")
		}
		secure = parsed.Scheme == "rediss"
		o.Addrs = append(o.Addrs, net.JoinHostPort(parsed.Hostname(), portOf(parsed)))
		if i == 0 {
			o.Username, o.Password = access.UserOf(parsed)
		}
		if err := database(o, parsed); err != nil {
			return nil, err
		}
	}
	if !secure && access.TLS != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "url has the scheme redis, and there is a Secret for TLS: must be rediss")
	}
	if len(o.Addrs) > 1 && o.DB != 0 {
		return nil, broker.Errorf(broker.ClassInvalid, "url names the database %d, and a cluster has only 0", o.DB)
	}
	if secure {
		var err error
		o.TLSConfig, err = access.TLS.ClientConfig()
		return o, err
	}
	return o, nil
}

// nameOf a connection, as the server takes it: without spaces and the like.
func nameOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r <= '~' {
			return r
		}
		return '-'
	}, name)
}

func portOf(parsed *url.URL) string {
	if port := parsed.Port(); port != "" {
		return port
	}
	return "6379"
}

// database is the number that a URL has for its path.
func database(o *redis.UniversalOptions, parsed *url.URL) error {
	path := strings.Trim(parsed.Path, "/")
	if path == "" {
		return nil
	}
	number, err := strconv.Atoi(path)
	if err != nil || number < 0 {
		return broker.Errorf(broker.ClassInvalid, "url has a path that is not the number of a database")
	}
	o.DB = number
	return nil
}
