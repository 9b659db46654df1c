package agenticsession

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// created remembers the Jobs that this process made and whose UID no status holds yet. With
// it one that somebody deletes in that time is known to be lost, not still to be made.
type created struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]madeJob
}

// madeJob is the one that was made last for a session.
type madeJob struct {
	owner types.UID
	name  string
	uid   types.UID
}

func newCreated() *created { return &created{jobs: map[types.NamespacedName]madeJob{}} }

func (c *created) add(s *v1alpha1.AgenticSession, name string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[client.ObjectKeyFromObject(s)] = madeJob{s.UID, name, uid}
}

func (c *created) of(s *v1alpha1.AgenticSession) map[string]types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, known := c.jobs[client.ObjectKeyFromObject(s)]
	if !known || made.owner != s.UID {
		return nil
	}
	return map[string]types.UID{made.name: made.uid}
}

// settle forgets what a stored status leaves no use for.
func (c *created) settle(s *v1alpha1.AgenticSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	if s.Status.JobUID != "" || s.Status.Job != c.jobs[key].name {
		delete(c.jobs, key)
	}
}

func (c *created) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, key)
}
