package agenticsession

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newSessionInWorkspace(name string, uid types.UID) *v1alpha1.AgenticSession {
	s := newTestSession(uid)
	s.Name, s.Status.WorkspaceClaim = name, "shared"
	return s
}

func TestOnlyOneSessionReservesAWorkspace(t *testing.T) {
	w := newWorkspaceReservations()
	first, second, elsewhere := newSessionInWorkspace("first", "1"), newSessionInWorkspace("second", "2"), newSessionInWorkspace("third", "3")
	elsewhere.Status.WorkspaceClaim = "own"
	for range 2 {
		if !w.reserve(first) {
			t.Error("the first has not got it")
		}
	}
	if w.reserve(second) {
		t.Error("both have it")
	}
	if got := w.userOf(second, "shared"); got != "first" {
		t.Errorf("the second waits for %q", got)
	}
	if got := w.userOf(first, "shared"); got != "" {
		t.Errorf("the first waits for %q", got)
	}
	if !w.reserve(elsewhere) {
		t.Error("a workspace of its own is not free")
	}
	first.Status.Job = ""
	w.release(first)
	if !w.reserve(second) {
		t.Error("it is not free when the first has ended")
	}
}

func TestWorkspaceIsReleasedWhenSessionIsDeleted(t *testing.T) {
	for title, leave := range map[string]func(w *workspaceReservations){
		"it is known to be gone": func(w *workspaceReservations) {
			w.forget(client.ObjectKeyFromObject(newSessionInWorkspace("first", "1")))
		},
		"there is another of its name by now": func(w *workspaceReservations) { w.release(newSessionInWorkspace("first", "9")) },
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspaceReservations()
			w.reserve(newSessionInWorkspace("first", "1"))
			leave(w)
			if !w.reserve(newSessionInWorkspace("second", "2")) {
				t.Error("it is taken for ever")
			}
		})
	}
}
