package agenticsession

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// workspaceReservations remembers which sessions this process has let begin in a workspace. The cache
// shows that a moment later, and until then two sessions, made at once to go on from the same
// one, would both find it free.
type workspaceReservations struct {
	mu    sync.Mutex
	users map[types.NamespacedName]workspaceUser
}

type workspaceUser struct {
	uid   types.UID
	claim string
}

func newWorkspaceReservations() *workspaceReservations {
	return &workspaceReservations{users: map[types.NamespacedName]workspaceUser{}}
}

// pass takes the workspace for a session that is about to begin, and gives it back for one
// that has ended: before that is written, since who waits for it looks when it is. It tells
// whether the session may go on.
func (w *workspaceReservations) pass(before, after *v1alpha1.AgenticSession) bool {
	if before.Status.Job == "" && after.Status.Job != "" && after.Status.WorkspaceClaim != "" {
		return w.reserve(after)
	}
	w.release(after)
	return true
}

// reserve tells whether the session has the workspace that its status names: nobody else has.
func (w *workspaceReservations) reserve(s *v1alpha1.AgenticSession) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.other(s, s.Status.WorkspaceClaim) != "" {
		return false
	}
	w.users[client.ObjectKeyFromObject(s)] = workspaceUser{s.UID, s.Status.WorkspaceClaim}
	return true
}

// userOf is another session that has the workspace; empty if none has.
func (w *workspaceReservations) userOf(s *v1alpha1.AgenticSession, claim string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.other(s, claim)
}

func (w *workspaceReservations) other(s *v1alpha1.AgenticSession, claim string) string {
	for key, user := range w.users {
		if key.Namespace == s.Namespace && user.claim == claim && user.uid != s.UID {
			return key.Name
		}
	}
	return ""
}

// release forgets a session that runs no more, or was another one of its name.
func (w *workspaceReservations) release(s *v1alpha1.AgenticSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	if user, known := w.users[key]; known && (user.uid != s.UID || s.Status.Job == "") {
		delete(w.users, key)
	}
}

func (w *workspaceReservations) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.users, key)
}
