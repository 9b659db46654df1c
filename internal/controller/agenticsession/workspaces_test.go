package agenticsession

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func inWorkspace(name string, uid types.UID) *v1alpha1.AgenticSession {
	s := sessionOf(uid)
	s.Name, s.Status.WorkspaceClaim = name, "shared"
	return s
}

func TestOfTwoSessionsThatBeginAtOnceInOneWorkspaceOneWaits(t *testing.T) {
	w := newWorkspaces()
	first, second, elsewhere := inWorkspace("first", "1"), inWorkspace("second", "2"), inWorkspace("third", "3")
	elsewhere.Status.WorkspaceClaim = "own"
	for range 2 {
		if !w.take(first) {
			t.Error("the first has not got it")
		}
	}
	if w.take(second) {
		t.Error("both have it")
	}
	if got := w.userBeside(second, "shared"); got != "first" {
		t.Errorf("the second waits for %q", got)
	}
	if got := w.userBeside(first, "shared"); got != "" {
		t.Errorf("the first waits for %q", got)
	}
	if !w.take(elsewhere) {
		t.Error("a workspace of its own is not free")
	}
	first.Status.Job = ""
	w.settle(first)
	if !w.take(second) {
		t.Error("it is not free when the first has ended")
	}
}

func TestAWorkspaceIsFreeWhenItsSessionIsGone(t *testing.T) {
	for title, leave := range map[string]func(w *workspaces){
		"it is known to be gone":              func(w *workspaces) { w.forget(client.ObjectKeyFromObject(inWorkspace("first", "1"))) },
		"there is another of its name by now": func(w *workspaces) { w.settle(inWorkspace("first", "9")) },
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspaces()
			w.take(inWorkspace("first", "1"))
			leave(w)
			if !w.take(inWorkspace("second", "2")) {
				t.Error("it is taken for ever")
			}
		})
	}
}
