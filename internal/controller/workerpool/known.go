package workerpool

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// known is what this process knows of each pool: the memory of its last decision, which
// its status has, too, but less often, and what its broker may tell of it.
type known struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]knownPool
}

type knownPool struct {
	uid    types.UID
	memory *scaling.Memory
	line   brokerconn.BrokerKey
	queues []string
	// applied are the objects as they were last applied, by kind.
	applied map[string]applied
}

func newKnown() *known { return &known{pools: map[types.NamespacedName]knownPool{}} }

// change what is known of a pool. What is of another that had its name is forgotten.
func (k *known) change(wp *v1alpha1.WorkerPool, change func(p *knownPool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKeyFromObject(wp)
	p := k.pools[key]
	if p.uid != wp.UID {
		p = knownPool{uid: wp.UID, applied: map[string]applied{}}
	}
	change(&p)
	k.pools[key] = p
}

// memory of the last decision, from the status if this process has made none.
func (k *known) memory(wp *v1alpha1.WorkerPool) (m scaling.Memory) {
	k.change(wp, func(p *knownPool) {
		if p.memory != nil {
			m = *p.memory
			return
		}
		m = scaling.RestoreMemory(wp.Status.Scaling)
	})
	return m
}

func (k *known) remember(wp *v1alpha1.WorkerPool, m scaling.Memory) {
	k.change(wp, func(p *knownPool) { p.memory = &m })
}

// listens notes on what a pool's broker may tell.
func (k *known) listens(wp *v1alpha1.WorkerPool, line brokerconn.BrokerKey, queues []string) {
	k.change(wp, func(p *knownPool) { p.line, p.queues = line, queues })
}

// concerned are the pools that an event is about.
func (k *known) concerned(e brokerconn.Notification) []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	var keys []types.NamespacedName
	for key, p := range k.pools {
		if p.line == e.Key && (e.Queue == "" || slices.Contains(p.queues, e.Queue)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// applied is the object of that kind as it was last applied.
func (k *known) applied(wp *v1alpha1.WorkerPool, kind string) (a applied) {
	k.change(wp, func(p *knownPool) { a = p.applied[kind] })
	return a
}

func (k *known) apply(wp *v1alpha1.WorkerPool, kind string, a applied) {
	k.change(wp, func(p *knownPool) { p.applied[kind] = a })
}

// forget drops all that is known of a pool that is gone.
func (k *known) forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pools, key)
}
