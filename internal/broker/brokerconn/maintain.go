package brokerconn

import (
	"context"
	"errors"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
)

// maintain keeps the connection established until ctx ends or the connection is unused.
func (c *Conn) maintain(ctx context.Context) {
	defer c.close()
	var state maintenance
	for {
		timer := time.NewTimer(state.maintainOnce(ctx, c))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.healthChecks:
			timer.Stop()
		case <-timer.C:
		}
		if c.manager.removeIfIdle(c) {
			return
		}
	}
}

// maintenance is the state between two rounds of maintaining a connection.
type maintenance struct {
	// credentials in the Secrets; nil if they cannot be used.
	credentials *broker.Credentials
	// connectedWith are the credentials of the last connection.
	connectedWith *broker.Credentials
	nextRead      time.Time // of the Secrets
	nextDial      time.Time
	failedDials   int
}

// maintainOnce reads, probes and connects as necessary. It returns the time until the next round.
func (m *maintenance) maintainOnce(ctx context.Context, c *Conn) time.Duration {
	if !time.Now().Before(m.nextRead) {
		m.readSecrets(ctx, c)
	}
	if m.credentials == nil {
		return time.Until(m.nextRead)
	}
	if engine, err := c.Engine(); err == nil && m.credentials.Equal(m.connectedWith) {
		if c.probe(ctx, engine) == nil {
			return c.manager.options.ProbeInterval
		}
		m.nextDial = time.Time{} // a new connection either works or finds the cause
	}
	if !time.Now().Before(m.nextDial) && m.reconnect(ctx, c) == nil {
		return c.manager.options.ProbeInterval
	}
	return min(time.Until(m.nextDial), time.Until(m.nextRead))
}

func (m *maintenance) readSecrets(ctx context.Context, c *Conn) {
	o := &c.manager.options
	reading, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	credentials, err := brokeraccess.ReadCredentials(reading, c.manager.liveReader, c.Key)
	switch {
	case err == nil:
		m.nextRead = time.Now().Add(o.SecretReadInterval)
		if !credentials.Equal(m.credentials) {
			m.credentials, m.nextDial, m.failedDials = credentials, time.Time{}, 0
		}
	case errors.As(err, new(*brokeraccess.ConnectionError)):
		m.nextRead, m.credentials = time.Now().Add(min(o.SecretReadInterval, 2*o.ProbeInterval)), nil
		c.reportProblem(err)
	default: // the API server does not answer, which says nothing about the broker
		m.nextRead = time.Now().Add(o.ProbeInterval)
		if m.credentials == nil {
			c.reportProblem(err)
		}
	}
}

// reconnect replaces the connection. After a failure it schedules the next attempt, and an earlier read of the Secrets, which somebody
// may correct.
func (m *maintenance) reconnect(ctx context.Context, c *Conn) error {
	engine, err := c.connect(ctx, m.credentials)
	if err == nil {
		m.failedDials, m.connectedWith = 0, m.credentials
		c.replace(engine)
		return nil
	}
	o := &c.manager.options
	m.failedDials++
	delay := broker.ReconnectDelay(m.failedDials)
	if broker.ClassOf(err) == broker.ClassUnreachable {
		delay = min(delay, o.MaxRetryInterval)
	}
	m.nextDial = time.Now().Add(delay)
	if early := time.Now().Add(2 * o.ProbeInterval); early.Before(m.nextRead) {
		m.nextRead = early
	}
	if ctx.Err() == nil {
		c.reportProblem(err)
	}
	return err
}

func (c *Conn) connect(ctx context.Context, credentials *broker.Credentials) (broker.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, c.manager.options.RequestTimeout)
	defer cancel()
	engine, err := dial.Connect(ctx, dial.EngineName(c.Key.Engine), c.manager.options.through(credentials, c.Key.Namespace))
	if err != nil {
		return nil, err
	}
	if err := c.probe(ctx, engine); err != nil {
		engine.Disconnect()
		return nil, err
	}
	return engine, nil
}

// probedQueue does not exist, because names of Queues cannot have this prefix.
const probedQueue = "yardmaster-nowhere"

// probe checks whether the broker answers, with the permissions that reading any queue needs.
func (c *Conn) probe(ctx context.Context, engine broker.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, c.manager.options.RequestTimeout)
	defer cancel()
	_, err := engine.Stats(ctx, probedQueue)
	if broker.ClassOf(err) == broker.ClassNotFound {
		return nil
	}
	return err
}
