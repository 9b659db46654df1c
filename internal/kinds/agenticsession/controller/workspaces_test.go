package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newSessionInWorkspace(name string, uid types.UID) *v1alpha1.AgenticSession {
	s := newTestSession(uid)
	s.Name, s.Status.Workspace.ClaimRef.Name = name, "shared"
	return s
}

func TestOnlyOneSessionReservesAWorkspace(t *testing.T) {
	w := newWorkspaceReservations()
	first, second, elsewhere := newSessionInWorkspace("first", "1"), newSessionInWorkspace("second", "2"), newSessionInWorkspace("third", "3")
	elsewhere.Status.Workspace.ClaimRef.Name = "own"
	for range 2 {
		if !w.reserve(first) {
			t.Error("the first session cannot reserve the workspace")
		}
	}
	if w.reserve(second) {
		t.Error("both sessions reserved the workspace")
	}
	if got, _ := w.otherUser(second, "shared"); got != "first" {
		t.Errorf("the second session waits for %q", got)
	}
	if got, _ := w.otherUser(first, "shared"); got != "" {
		t.Errorf("the first session waits for %q", got)
	}
	if !w.reserve(elsewhere) {
		t.Error("a different workspace is not free")
	}
	first.Status.Attempt.JobName = ""
	w.releaseUnused(first)
	if !w.reserve(second) {
		t.Error("the workspace is not free after the first session ended")
	}
}

func TestWorkspaceIsReleasedWhenSessionIsDeleted(t *testing.T) {
	for title, release := range map[string]func(w *workspaceReservations){
		"the session is deleted": func(w *workspaceReservations) {
			w.forget(client.ObjectKeyFromObject(newSessionInWorkspace("first", "1")))
		},
		"another session has its name": func(w *workspaceReservations) { w.releaseUnused(newSessionInWorkspace("first", "9")) },
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspaceReservations()
			w.reserve(newSessionInWorkspace("first", "1"))
			release(w)
			if !w.reserve(newSessionInWorkspace("second", "2")) {
				t.Error("the workspace is still reserved")
			}
		})
	}
}
