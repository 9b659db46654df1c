package bulkhead

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

type task struct {
	object types.NamespacedName
	peer   string
	work   func()
	ended  func()
}

// turns stores waiting tasks, and counts running tasks. Namespaces take turns, and so do the peers within a namespace; the
// tasks of a peer run in the order in which they were added.
type turns struct {
	limits     Limits
	running    int
	order      []string // namespaces with waiting tasks
	namespaces map[string]*namespaceTasks
}

type namespaceTasks struct {
	running int
	order   []string // peers with waiting tasks
	peers   map[string]*peerTasks
}

type peerTasks struct {
	running int
	waiting []task
}

func (t *turns) push(added task) {
	namespace := t.namespaces[added.object.Namespace]
	if namespace == nil {
		namespace = &namespaceTasks{peers: map[string]*peerTasks{}}
		t.namespaces[added.object.Namespace] = namespace
	}
	if len(namespace.order) == 0 {
		t.order = append(t.order, added.object.Namespace)
	}
	peer := namespace.peers[added.peer]
	if peer == nil {
		peer = &peerTasks{}
		namespace.peers[added.peer] = peer
	}
	if len(peer.waiting) == 0 {
		namespace.order = append(namespace.order, added.peer)
	}
	peer.waiting = append(peer.waiting, added)
}

// pop returns the next task and counts it as running, unless the limits keep all tasks from running.
func (t *turns) pop() (task, bool) {
	if t.running >= t.limits.Total {
		return task{}, false
	}
	for i, name := range t.order {
		namespace := t.namespaces[name]
		if namespace.running >= t.limits.PerNamespace {
			continue
		}
		next, found := namespace.pop(t.limits.PerPeer)
		if !found {
			continue
		}
		t.order = slices.Delete(t.order, i, i+1)
		if len(namespace.order) > 0 {
			t.order = append(t.order, name)
		}
		t.running++
		return next, true
	}
	return task{}, false
}

func (n *namespaceTasks) pop(perPeer int) (task, bool) {
	for i, name := range n.order {
		peer := n.peers[name]
		if peer.running >= perPeer {
			continue
		}
		next := peer.waiting[0]
		peer.waiting = slices.Delete(peer.waiting, 0, 1)
		n.order = slices.Delete(n.order, i, i+1)
		if len(peer.waiting) > 0 {
			n.order = append(n.order, name)
		}
		peer.running++
		n.running++
		return next, true
	}
	return task{}, false
}

func (t *turns) done(finished task) {
	namespace := t.namespaces[finished.object.Namespace]
	peer := namespace.peers[finished.peer]
	peer.running--
	namespace.running--
	t.running--
	if peer.running == 0 && len(peer.waiting) == 0 {
		delete(namespace.peers, finished.peer)
	}
	if len(namespace.peers) == 0 {
		delete(t.namespaces, finished.object.Namespace)
	}
}
