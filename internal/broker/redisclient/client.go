// Package redisclient connects to Redis and Valkey, for the asynq engine and the Redis backlog source, and classifies their errors.
package redisclient

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	defaultPort = "6379"
	dialTimeout = 5 * time.Second
	// responseTimeout is the maximum time for a response, without the time for which a blocking command waits.
	responseTimeout = 5 * time.Second
)

// The library logs errors that callers also receive.
func init() { logging.Disable() }

// NewClient connects to a server, or, with several URLs separated by commas, to a cluster. If the credentials have a Sentinel, the
// URLs are the addresses of Sentinels, and the client connects to the master that they name. The client reconnects by itself. It opens
// at most poolSize connections.
func NewClient(ctx context.Context, credentials broker.Credentials, poolSize int) (redis.UniversalClient, error) {
	options, err := clientOptions(&credentials)
	if err != nil {
		return nil, err
	}
	if credentials.Refresh != nil {
		options.CredentialsProvider = refreshedLogin(&credentials, options.Username, options.Password)
	}
	// The dialer of the library knows no Sentinels, and keeps the first certificates.
	if credentials.Dial == nil && (credentials.Sentinel != nil || credentials.Refresh != nil && options.TLSConfig != nil) {
		credentials.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	options.PoolSize = poolSize
	answered := &atomic.Bool{}
	var client redis.UniversalClient
	if credentials.Sentinel != nil {
		client = newSentinelClient(&credentials, options, answered)
	} else {
		if credentials.Dial != nil {
			options.Dialer = boundedDialer(&credentials, options, answered)
		}
		client = redis.NewUniversalClient(options)
	}
	if credentials.ConcealCauses {
		client.AddHook(errorHook(func(_ context.Context, err error) error { return conceal(&credentials, err, answered.Load()) }))
	}
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, ClassifyError("connecting", err)
	}
	return client, nil
}

// refreshedLogin returns the current username and password, or the previous ones if reading fails, as it can while files are
// replaced.
func refreshedLogin(credentials *broker.Credentials, name, password string) func() (name, password string) {
	var mu sync.Mutex
	return func() (string, string) {
		mu.Lock()
		defer mu.Unlock()
		now, err := credentials.Refresh()
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

func clientOptions(credentials *broker.Credentials) (*redis.UniversalOptions, error) {
	// The server accepts only these characters in a name.
	name := strings.Map(func(r rune) rune {
		if r > ' ' && r <= '~' {
			return r
		}
		return '-'
	}, credentials.Name)
	o := &redis.UniversalOptions{
		ClientName:            name,
		DialTimeout:           dialTimeout,
		ReadTimeout:           responseTimeout,
		WriteTimeout:          responseTimeout,
		ContextTimeoutEnabled: true,
		// Callers decide, because retrying a command that may have succeeded is not safe in general.
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	secure, port := false, defaultPort
	if credentials.Sentinel != nil {
		if port = defaultSentinelPort; credentials.Sentinel.MasterName == "" {
			return nil, broker.Errorf(broker.ClassInvalid, "sentinel.masterName is empty")
		}
	}
	for i, one := range strings.Split(credentials.URL, ",") {
		parsed, err := broker.ParseURL(one, "redis", "rediss")
		if err != nil {
			return nil, err
		}
		if i > 0 && secure != (parsed.Scheme == "rediss") {
			return nil, broker.Errorf(broker.ClassInvalid, "url has servers with TLS (rediss) and without (redis)")
		}
		secure = parsed.Scheme == "rediss"
		o.Addrs = append(o.Addrs, net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), port)))
		if i == 0 {
			o.Username, o.Password = credentials.UserOf(parsed)
		}
		if err := setDatabase(o, parsed); err != nil {
			return nil, err
		}
	}
	if !secure && credentials.TLS != nil {
		return nil, broker.Errorf(broker.ClassInvalid, "url has the scheme redis, but a TLS Secret is set: must be rediss")
	}
	if len(o.Addrs) > 1 && o.DB != 0 && credentials.Sentinel == nil {
		return nil, broker.Errorf(broker.ClassInvalid, "url names database %d, but a cluster has only 0", o.DB)
	}
	if secure {
		var err error
		o.TLSConfig, err = credentials.TLS.ClientConfig()
		return o, err
	}
	return o, nil
}

// setDatabase reads the database number in the path of a URL.
func setDatabase(o *redis.UniversalOptions, parsed *url.URL) error {
	path := strings.Trim(parsed.Path, "/")
	if path == "" {
		return nil
	}
	number, err := strconv.Atoi(path)
	if err != nil || number < 0 {
		return broker.Errorf(broker.ClassInvalid, "url has a path that is not a database number")
	}
	o.DB = number
	return nil
}

var errorPrefixesByClass = map[broker.ErrorClass][]string{
	broker.ClassUnauthorized: {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH"},
	broker.ClassUnreachable:  {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY ", "ERR max number of clients"},
	broker.ClassInvalid:      {"WRONGTYPE", "ERR unknown command", "ERR DB index", "ERR syntax"},
	broker.ClassNotFound:     {"NOGROUP", "ERR no such key"},
}

// ClassifyError adds the operation and a class to an error.
func ClassifyError(operation string, err error) error {
	if err != nil && broker.ClassOf(err) == broker.ClassUnknown {
		if class := classOf(err); class != broker.ClassUnknown {
			return broker.Errorf(class, "%s: %w", operation, err)
		}
	}
	return broker.ClassifyNetworkError(operation, err)
}

func classOf(err error) broker.ErrorClass {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return broker.ClassUnreachable
	}
	for class, words := range errorPrefixesByClass {
		for _, word := range words {
			if redis.HasErrorPrefix(err, word) || strings.HasPrefix(err.Error(), word) {
				return class
			}
		}
	}
	return broker.ClassUnknown
}
