package brokerconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
)

// Conn is a connection to a broker, or the attempts to establish one.
type Conn struct {
	Key brokeraccess.Key

	manager      *Manager
	healthChecks chan struct{}
	lastUsed     time.Time // guarded by the Manager

	mu         sync.Mutex
	session    *session // nil before the first connection and after the close
	problem    *brokeraccess.ConnectionError
	problemSet time.Time
}

// session is an established connection with the reads and waits that callers share. The Conn guards it.
type session struct {
	engine broker.Engine
	ctx    context.Context //nolint:containedctx // ends with the session, not with a call
	cancel context.CancelFunc
	reads  singleflight.Group
	stats  map[string]timedStats
	// waits has the cancel functions of waits for the next message, by queue.
	waits map[string]context.CancelFunc
}

// Engine returns the connected engine. The error is ErrConnecting or a brokeraccess.ConnectionError.
func (c *Conn) Engine() (broker.Engine, error) {
	s, err := c.currentSession()
	if err != nil {
		return nil, err
	}
	return s.engine, nil
}

func (c *Conn) currentSession() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.problem != nil:
		return nil, c.problem
	case c.session == nil:
		return nil, ErrConnecting
	}
	return c.session, nil
}

// EngineForCleanup returns an engine that is still connected although its Secret was deleted, so that Queues that were deleted together
// with the Secret can be removed from the broker; nil if no engine is connected.
func (c *Conn) EngineForCleanup() broker.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.problem != nil && c.problem.Reason != v1alpha1.ReasonSecretNotFound {
		return nil
	}
	return c.session.engine
}

// CheckHealth probes the broker at once if an error says that it cannot be reached. It ignores ConnectionErrors, which a probe has found.
func (c *Conn) CheckHealth(err error) {
	class := broker.ClassOf(err)
	if errors.As(err, new(*brokeraccess.ConnectionError)) || class != broker.ClassUnreachable && class != broker.ClassUnauthorized {
		return
	}
	select {
	case c.healthChecks <- struct{}{}:
	default: // a check is already pending
	}
}

// replace starts a session with a new engine and ends the previous one.
func (c *Conn) replace(engine broker.Engine) {
	ctx, cancel := context.WithCancel(c.manager.ctx)
	s := &session{engine: engine, ctx: ctx, cancel: cancel, stats: map[string]timedStats{}, waits: map[string]context.CancelFunc{}}
	c.mu.Lock()
	previous := c.session
	c.session, c.problem = s, nil
	c.mu.Unlock()
	c.endSession(previous)
	c.manager.notifyListeners(Notification{Key: c.Key})
}

// endSession disconnects in the background, because that takes a second if the broker is down.
func (c *Conn) endSession(s *session) {
	if s != nil {
		s.cancel()
		c.manager.background.Go(s.engine.Disconnect)
	}
}

func (c *Conn) close() {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	c.endSession(s)
}

// problemStableTime is how long the message of a problem is kept if only its details change, such as a port number.
const problemStableTime = time.Minute

// reportProblem stores why the connection cannot be used, and notifies listeners of a change.
func (c *Conn) reportProblem(err error) {
	problem := &brokeraccess.ConnectionError{Reason: queue.ReasonForClass(broker.ClassOf(err)), Err: err}
	if errors.As(err, new(broker.InvalidURLError)) { // no broker has refused it
		problem.Reason = v1alpha1.ReasonURLInvalid
	}
	errors.As(err, &problem)
	c.mu.Lock()
	changed := c.problem == nil || c.problem.Reason != problem.Reason ||
		c.problem.Error() != problem.Error() && time.Since(c.problemSet) >= problemStableTime
	if changed {
		c.problem, c.problemSet = problem, time.Now()
	}
	c.mu.Unlock()
	if changed {
		c.manager.notifyListeners(Notification{Key: c.Key})
	}
}

// ErrConnecting is returned until the first attempt to connect ends, and listeners are notified.
var ErrConnecting = errors.New("connecting to the broker")

var errNoBroker = errors.New("the object has no broker: set spec.broker, a Policy with defaults.broker, or the operator's flag --broker-url-secret")
