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

// Line is a connection to a broker, or the tries to have one.
type Line struct {
	Key Key

	keeper *Keeper
	dial   Dial
	doubts chan struct{}
	used   time.Time // guarded by the Keeper

	mu     sync.Mutex
	engine broker.Engine
	// life ends with the engine's.
	life     context.Context //nolint:containedctx // of what is begun with the engine, not of a call
	end      context.CancelFunc
	problem  *Error
	reported time.Time
	queues   map[string]*reading
	awaited  map[string]context.CancelFunc
}

func newLine(k *Keeper, key Key, dial Dial) *Line {
	return &Line{Key: key, keeper: k, dial: dial, doubts: make(chan struct{}, 1)}
}

// Engine is the connection. Without one the error is ErrConnecting or an Error.
func (l *Line) Engine() (broker.Engine, error) {
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

// Remaining is the connection as long as it lasts, also when its Secrets are gone: what
// is deleted together with them can still be taken from the broker. Nil if there is none.
func (l *Line) Remaining() broker.Engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != nil && l.problem.Reason != v1alpha1.ReasonSecretNotFound {
		return nil
	}
	return l.engine
}

// Doubt has the line look at once whether the broker is there, if the error says that it
// is not.
func (l *Line) Doubt(err error) {
	if class := broker.ClassOf(err); class != broker.Unreachable && class != broker.Unauthorised {
		return
	}
	select {
	case l.doubts <- struct{}{}:
	default: // it is about to
	}
}

// connected is the engine, if all is well with it.
func (l *Line) connected() broker.Engine {
	engine, err := l.Engine()
	if err != nil {
		return nil
	}
	return engine
}

// put takes an engine into use, in place of the one there was.
func (l *Line) put(engine broker.Engine) {
	l.mu.Lock()
	old, end := l.engine, l.end
	l.engine, l.problem = engine, nil
	l.life, l.end = context.WithCancel(l.keeper.ctx)
	l.queues, l.awaited = map[string]*reading{}, map[string]context.CancelFunc{}
	l.mu.Unlock()
	l.retire(old, end)
	l.keeper.tell(Event{Key: l.Key})
}

func (l *Line) retire(engine broker.Engine, end context.CancelFunc) {
	if engine == nil {
		return
	}
	end()
	l.keeper.closing.Go(engine.Disconnect) // a broker that is not there takes a second
}

// hangUp ends the connection.
func (l *Line) hangUp() {
	l.mu.Lock()
	engine, end := l.engine, l.end
	l.engine = nil
	l.mu.Unlock()
	l.retire(engine, end)
}

// sameFor is how long a problem's text stays although the broker puts it differently each
// time, as with the number of a port.
const sameFor = time.Minute

// report keeps why there is no connection, and tells of it if that is new.
func (l *Line) report(err error) {
	problem := &Error{ReasonOf(err), err}
	errors.As(err, &problem)
	l.mu.Lock()
	old := l.problem != nil && l.problem.Reason == problem.Reason &&
		(l.problem.Error() == problem.Error() || time.Since(l.reported) < sameFor)
	if !old {
		l.problem, l.reported = problem, time.Now()
	}
	l.mu.Unlock()
	if !old {
		l.keeper.tell(Event{Key: l.Key})
	}
}
