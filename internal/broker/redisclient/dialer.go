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

// boundedDialer returns a dialer for the client library that connects with the Dial function of
// the credentials, also to the servers of a cluster to which others redirect, and to those that
// Sentinels name. Answered is whether
// the last server to which it connected has replied.
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
			config := o.TLSConfig.Clone()
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

// concealingHook conceals the errors of all commands.
type concealingHook struct {
	credentials *broker.Credentials
	answered    *atomic.Bool
}

// conceal keeps the type of an error that it does not change.
func (h *concealingHook) conceal(err error) error {
	if err == nil || errors.Is(err, redis.Nil) || errors.As(err, new(*lookupError)) {
		return err
	}
	classified := error(&broker.ClassifiedError{Class: classOf(err), Err: err})
	if broker.ClassOf(err) != broker.ClassUnknown {
		classified = err
	}
	if concealed := h.credentials.Conceal(classified, h.answered.Load()); concealed != classified { //nolint:errorlint // Conceal returns the same error
		return concealed
	}
	return err
}

// DialHook implements redis.Hook.
func (*concealingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *concealingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := h.conceal(next(ctx, command))
		if err != nil {
			command.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *concealingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := h.conceal(next(ctx, commands))
		for _, command := range commands {
			command.SetErr(h.conceal(command.Err()))
		}
		return err
	}
}
