package bulkhead

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// slowAfter is the duration from which work counts as slow. A healthy peer answers within milliseconds.
const slowAfter = time.Second

// Limits of concurrent work.
type Limits struct {
	// PerPeer limits the work for one peer of a namespace.
	PerPeer int
	// PerNamespace limits the work of a namespace.
	PerNamespace int
	// Slow limits the work that was slow the last time.
	Slow int
	// Total limits all other work. Together with Slow, it bounds memory.
	Total int
}

// DefaultLimits suit one controller.
func DefaultLimits() Limits { return Limits{PerPeer: 16, PerNamespace: 32, Slow: 64, Total: 128} }

// Executor runs work for objects, at most one at a time for each. Its methods are safe for concurrent use.
type Executor struct {
	now func() time.Time

	mutex      sync.Mutex
	active     map[types.NamespacedName]bool // waits or runs
	slow       map[types.NamespacedName]bool // was slow the last time
	quickTurns *turns
	slowTurns  *turns
	finished   sync.WaitGroup
}

// NewExecutor returns an idle Executor.
func NewExecutor(limits Limits) *Executor {
	slowest := limits
	slowest.Total = limits.Slow
	return &Executor{
		now:    time.Now,
		active: map[types.NamespacedName]bool{}, slow: map[types.NamespacedName]bool{},
		quickTurns: &turns{limits: limits, namespaces: map[string]*namespaceTasks{}},
		slowTurns:  &turns{limits: slowest, namespaces: map[string]*namespaceTasks{}},
	}
}

// Start waits until all work has ended when ctx ends. It implements manager.Runnable.
func (e *Executor) Start(ctx context.Context) error {
	<-ctx.Done()
	e.finished.Wait()
	return nil
}

// Go runs work for an object when its turn has come, and then calls ended. It does nothing while other work for the object
// waits or runs.
func (e *Executor) Go(object types.NamespacedName, peer string, work, ended func()) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.active[object] {
		return
	}
	e.active[object] = true
	chosen := e.quickTurns
	if e.slow[object] {
		chosen = e.slowTurns
	}
	e.finished.Add(1)
	chosen.push(task{object: object, peer: peer, work: work, ended: ended})
	e.startNext(chosen)
}

// Forget drops the state of an object that no longer exists.
func (e *Executor) Forget(object types.NamespacedName) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.slow, object)
}

// startNext starts all tasks that the limits allow. The mutex must be locked.
func (e *Executor) startNext(chosen *turns) {
	for {
		next, found := chosen.pop()
		if !found {
			return
		}
		go e.run(chosen, next)
	}
}

func (e *Executor) run(chosen *turns, t task) {
	defer e.finished.Done()
	start := e.now()
	t.work()
	took := e.now().Sub(start)
	e.mutex.Lock()
	delete(e.active, t.object)
	delete(e.slow, t.object)
	if took > slowAfter {
		e.slow[t.object] = true
	}
	chosen.done(t)
	e.startNext(chosen)
	e.mutex.Unlock()
	t.ended()
}
