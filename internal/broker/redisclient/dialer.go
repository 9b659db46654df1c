package redisclient

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
)

// boundedDialer returns a dialer for the client library that connects with the Dial function of the credentials, also to servers to
// which a cluster redirects or that Sentinels name. Answered reports whether the last server to which it connected has replied.
func boundedDialer(credentials *broker.Credentials, o *redis.UniversalOptions, answered *atomic.Bool) broker.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		answered.Store(false)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		raw, err := credentials.Dial(ctx, network, address)
		if errors.Is(err, broker.ErrAddressDenied) && !slices.Contains(o.Addrs, address) {
			err = broker.ErrUnreachable // another server announced the address
		}
		if err != nil {
			return nil, credentials.Conceal(err, false)
		}
		stream := raw
		if o.TLSConfig != nil {
			config := currentTLS(credentials, o.TLSConfig)
			if config.ServerName == "" {
				config.ServerName, _, _ = net.SplitHostPort(address)
			}
			secured := tls.Client(raw, config)
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = raw.Close()
				return nil, credentials.Conceal(err, false)
			}
			stream = secured
		}
		return bounded.GuardRedis(raw, stream, func() { answered.Store(true) }), nil
	}
}

// currentTLS returns a copy of the current configuration, or of the first one if reading fails, as it can while files are replaced.
func currentTLS(credentials *broker.Credentials, first *tls.Config) *tls.Config {
	if credentials.Refresh != nil {
		if now, err := credentials.Refresh(); err == nil {
			if config, err := now.TLS.ClientConfig(); err == nil {
				return config
			}
		}
	}
	return first.Clone()
}

// conceal keeps the type of an error that it does not change.
func conceal(credentials *broker.Credentials, err error, answered bool) error {
	if err == nil || errors.Is(err, redis.Nil) || errors.As(err, new(*lookupError)) {
		return err
	}
	classified := error(&broker.ClassifiedError{Class: classOf(err), Err: err})
	if broker.ClassOf(err) != broker.ClassUnknown {
		classified = err
	}
	if concealed := credentials.Conceal(classified, answered); concealed != classified { //nolint:errorlint // Conceal returns the same error
		return concealed
	}
	return err
}

// errorHook replaces the errors of all commands.
type errorHook func(ctx context.Context, err error) error

// DialHook implements redis.Hook.
func (errorHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h errorHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := h(ctx, next(ctx, command))
		if err != nil {
			command.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h errorHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := h(ctx, next(ctx, commands))
		for _, command := range commands {
			command.SetErr(h(ctx, command.Err()))
		}
		return err
	}
}
