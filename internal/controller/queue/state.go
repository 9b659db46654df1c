package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// state is what this process remembers of a Queue. It is only touched in the Queue's own
// pass, of which there is one at a time. Who has none begins anew.
type state struct {
	memory  queue.Memory
	ensured ensured
}

// known are the Queues this process has seen, and the lines they are on.
type known struct {
	mu     sync.Mutex
	states map[types.NamespacedName]*state
	places map[types.NamespacedName]place
	lines  map[brokerconn.BrokerKey]map[types.NamespacedName]string
}

// place is where a Queue's queue is.
type place struct {
	line brokerconn.BrokerKey
	name string
}

func newKnown() *known {
	return &known{
		states: map[types.NamespacedName]*state{},
		places: map[types.NamespacedName]place{},
		lines:  map[brokerconn.BrokerKey]map[types.NamespacedName]string{},
	}
}

func (k *known) of(key types.NamespacedName) *state {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, there := k.states[key]
	if !there {
		s = &state{}
		k.states[key] = s
	}
	return s
}

// on notes where a Queue's queue is.
func (k *known) on(key types.NamespacedName, line brokerconn.BrokerKey, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.places[key] == (place{line, name}) {
		return
	}
	k.leave(key)
	k.places[key] = place{line, name}
	if k.lines[line] == nil {
		k.lines[line] = map[types.NamespacedName]string{}
	}
	k.lines[line][key] = name
}

func (k *known) leave(key types.NamespacedName) {
	line := k.places[key].line
	delete(k.lines[line], key)
	if len(k.lines[line]) == 0 {
		delete(k.lines, line)
	}
	delete(k.places, key)
}

// concerned are the Queues that an event is about.
func (k *known) concerned(event brokerconn.Notification) []types.NamespacedName {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []types.NamespacedName
	for key, name := range k.lines[event.Key] {
		if event.Queue == "" || event.Queue == name {
			all = append(all, key)
		}
	}
	return all
}

func (k *known) forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.states, key)
	k.leave(key)
}

// forget drops what is remembered of a Queue that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.writeCache.Forget(key)
	r.known.forget(key)
}
