package agenticsession

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// workspaceReservations remembers which sessions this process started in a workspace. The cache
// shows that a moment later, and until then two sessions that continue the same one would both
// find its workspace free.
type workspaceReservations struct {
	// mu is held from the check for another user to the reservation.
	mu sync.Mutex
	// claims that sessions reserved, by session.
	claims *kube.Store[string]
}

func newWorkspaceReservations() *workspaceReservations {
	return &workspaceReservations{claims: kube.NewStore[string]()}
}

// update reserves the workspace of a session that starts an attempt, and releases that of a
// session that ended one. It is called before the status is written, because waiting sessions
// check the reservation when they observe that status. It returns false if another session
// reserved the workspace.
func (w *workspaceReservations) update(before, after *v1alpha1.AgenticSession) bool {
	if before.Status.Job == "" && after.Status.Job != "" && after.Status.WorkspaceClaim != "" {
		return w.reserve(after)
	}
	w.releaseUnused(after)
	return true
}

// reserve reserves the workspace of the session's status, unless another session did.
func (w *workspaceReservations) reserve(s *v1alpha1.AgenticSession) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.otherUser(s, s.Status.WorkspaceClaim) != "" {
		return false
	}
	w.claims.Set(s, s.Status.WorkspaceClaim)
	return true
}

// otherUser returns the name of another session that reserved the claim; empty if none did.
func (w *workspaceReservations) otherUser(s *v1alpha1.AgenticSession, claim string) string {
	name := ""
	w.claims.Each(func(key types.NamespacedName, uid types.UID, reserved string) bool {
		if key.Namespace == s.Namespace && reserved == claim && uid != s.UID {
			name = key.Name
		}
		return name == ""
	})
	return name
}

// releaseUnused releases the workspace of a session without an open attempt, and that of an
// earlier session with its name.
func (w *workspaceReservations) releaseUnused(s *v1alpha1.AgenticSession) {
	if _, reserved := w.claims.Get(s); !reserved || s.Status.Job == "" {
		w.forget(client.ObjectKeyFromObject(s))
	}
}

func (w *workspaceReservations) forget(key types.NamespacedName) { w.claims.Forget(key) }
