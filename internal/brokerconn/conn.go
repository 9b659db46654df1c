package brokerconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

var errNoBroker = errors.New("broker is neither in the spec nor in a Policy that selects it, and the operator has none of its own")

// Conn is a connection to a broker, or the tries to have one.
type Conn struct {
	Key BrokerKey

	manager      *Manager
	healthChecks chan struct{}
	lastUsed     time.Time // guarded by the Keeper

	mu     sync.Mutex
	engine broker.Engine
	// engineCtx ends with the engine's.
	engineCtx    context.Context //nolint:containedctx // of what is begun with the engine, not of a call
	cancelEngine context.CancelFunc
	problem      *ConnectionError
	reportedAt   time.Time
	queues       map[string]*reading
	awaited      map[string]context.CancelFunc
}

func newConn(k *Manager, key BrokerKey) *Conn {
	return &Conn{Key: key, manager: k, healthChecks: make(chan struct{}, 1)}
}

// Engine is the connection. Without one the error is ErrConnecting or an Error.
func (l *Conn) Engine() (broker.Engine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.problem != nil:
		return nil, l.problem
	case l.engine == nil:
		return nil, ErrConnecting
	}
	return l.engine, nil
}

// EngineForCleanup is the connection as long as it lasts, also when its Secrets are gone: what
// is deleted together with them can still be taken from the broker. Nil if there is none.
func (l *Conn) EngineForCleanup() broker.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != nil && l.problem.Reason != v1alpha1.ReasonSecretNotFound {
		return nil
	}
	return l.engine
}

// CheckHealth has the line look at once whether the broker is there, if the error says that it
// is not.
func (l *Conn) CheckHealth(err error) {
	if class := broker.ClassOf(err); class != broker.ClassUnreachable && class != broker.ClassUnauthorized {
		return
	}
	select {
	case l.healthChecks <- struct{}{}:
	default: // it is about to
	}
}

// healthyEngine is the engine, if all is well with it.
func (l *Conn) healthyEngine() broker.Engine {
	engine, err := l.Engine()
	if err != nil {
		return nil
	}
	return engine
}

// replace takes an engine into use, in place of the one there was.
func (l *Conn) replace(engine broker.Engine) {
	l.mu.Lock()
	old, end := l.engine, l.cancelEngine
	l.engine, l.problem = engine, nil
	l.engineCtx, l.cancelEngine = context.WithCancel(l.manager.ctx)
	l.queues, l.awaited = map[string]*reading{}, map[string]context.CancelFunc{}
	l.mu.Unlock()
	l.disconnect(old, end)
	l.manager.notifyListeners(Notification{Key: l.Key})
}

func (l *Conn) disconnect(engine broker.Engine, end context.CancelFunc) {
	if engine == nil {
		return
	}
	end()
	l.manager.background.Go(engine.Disconnect) // a broker that is not there takes a second
}

// close ends the connection.
func (l *Conn) close() {
	l.mu.Lock()
	engine, end := l.engine, l.cancelEngine
	l.engine = nil
	l.mu.Unlock()
	l.disconnect(engine, end)
}

// sameFor is how long a problem's text stays although the broker puts it differently each
// time, as with the number of a port.
const sameFor = time.Minute

// reportProblem keeps why there is no connection, and tells of it if that is new.
func (l *Conn) reportProblem(err error) {
	problem := &ConnectionError{ConditionReason(err), err}
	errors.As(err, &problem)
	l.mu.Lock()
	old := l.problem != nil && l.problem.Reason == problem.Reason &&
		(l.problem.Error() == problem.Error() || time.Since(l.reportedAt) < sameFor)
	if !old {
		l.problem, l.reportedAt = problem, time.Now()
	}
	l.mu.Unlock()
	if !old {
		l.manager.notifyListeners(Notification{Key: l.Key})
	}
}
