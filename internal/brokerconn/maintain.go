package brokerconn

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// maintain holds the connection until ctx ends or nobody asks for it.
func (l *Conn) maintain(ctx context.Context) {
	defer l.close()
	var u upkeep
	for {
		timer := time.NewTimer(u.look(ctx, l))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.healthChecks:
			timer.Stop()
		case <-timer.C:
		}
		if l.manager.removeIfIdle(l) {
			return
		}
	}
}

// upkeep is what the keeping of a line must know of the last look.
type upkeep struct {
	// access is what the Secrets say; nil, if they cannot be used.
	access *broker.Credentials
	// used is what the connection was made with.
	used *broker.Credentials
	// read and dialled are when that is due again.
	read, dialled time.Time
	tries         int
}

// look sees to the connection, and tells when to look again.
func (u *upkeep) look(ctx context.Context, l *Conn) time.Duration {
	if !time.Now().Before(u.read) {
		u.reread(ctx, l)
	}
	if u.access == nil {
		return time.Until(u.read)
	}
	if engine := l.healthyEngine(); engine != nil && u.access.Equal(u.used) {
		if l.probe(ctx, engine) == nil {
			return l.manager.options.ProbeInterval
		}
		u.dialled = time.Time{} // what is wrong, a new connection tells best
	}
	if time.Now().Before(u.dialled) {
		return time.Until(minTime(u.dialled, u.read))
	}
	if u.connect(ctx, l) == nil {
		return l.manager.options.ProbeInterval
	}
	return time.Until(minTime(u.dialled, u.read))
}

// reread reads the Secrets.
func (u *upkeep) reread(ctx context.Context, l *Conn) {
	o := &l.manager.options
	reading, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	access, err := readCredentials(reading, l.manager.liveReader, l.Key)
	switch {
	case err == nil:
		u.read = time.Now().Add(o.SecretReadInterval)
		if !access.Equal(u.access) {
			u.access, u.dialled, u.tries = access, time.Time{}, 0
		}
	case errors.As(err, new(*ConnectionError)):
		u.read, u.access = time.Now().Add(min(o.SecretReadInterval, 2*o.ProbeInterval)), nil
		l.reportProblem(err)
	default: // the API server does not answer, which says nothing about the broker
		u.read = time.Now().Add(o.ProbeInterval)
		if u.access == nil {
			l.reportProblem(err)
		}
	}
}

// connect makes a new connection, in place of the one there was.
func (u *upkeep) connect(ctx context.Context, l *Conn) error {
	engine, err := l.connect(ctx, u.access)
	if err == nil {
		u.tries, u.used = 0, u.access
		l.replace(engine)
		return nil
	}
	o := &l.manager.options
	u.tries++
	wait := broker.ReconnectDelay(u.tries, rand.Float64()) //nolint:gosec // to spread, not to hide
	if broker.ClassOf(err) == broker.ClassUnreachable {
		wait = min(wait, o.MaxRetryInterval) // who waits for a broker that is back should not wait long
	}
	u.dialled = time.Now().Add(wait)
	// Nor who has put a Secret right.
	u.read = minTime(u.read, time.Now().Add(2*o.ProbeInterval))
	if ctx.Err() == nil {
		l.reportProblem(err)
	}
	return err
}

func (l *Conn) connect(ctx context.Context, access *broker.Credentials) (broker.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, l.manager.options.RequestTimeout)
	defer cancel()
	engine, err := dial.Connect(ctx, dial.EngineName(l.Key.Engine), *access)
	if err != nil {
		return nil, err
	}
	if err := l.probe(ctx, engine); err != nil {
		engine.Disconnect()
		return nil, err
	}
	return engine, nil
}

// nowhere is a queue that cannot be: names that begin so are refused.
const nowhere = "yardmaster-nowhere"

// probe tells whether the broker answers. It asks for a queue that is not there, as who
// may ask for queues at all may do.
func (l *Conn) probe(ctx context.Context, engine broker.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, l.manager.options.RequestTimeout)
	defer cancel()
	_, err := engine.Stats(ctx, nowhere)
	if broker.ClassOf(err) == broker.ClassNotFound {
		return nil
	}
	return err
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
