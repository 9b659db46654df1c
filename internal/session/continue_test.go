package session

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func parent() *v1alpha1.AgenticSession {
	p := &v1alpha1.AgenticSession{}
	p.Name, p.Spec.UserContext = "before", &v1alpha1.UserContext{UserID: "ann"}
	p.Status.Phase, p.Status.WorkspaceClaim, p.Status.SDKSessionID = v1alpha1.SessionCompleted, "before-workspace", "sdk"
	return p
}

func continues(t *testing.T) *scene {
	t.Helper()
	s := scenery(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.ContinueFrom = &v1alpha1.SessionReference{Name: "before"}
		spec.UserContext = &v1alpha1.UserContext{UserID: "ann"}
	})
	s.Parent = parent()
	return s
}

func TestASessionGoesOnOnlyFromOneOfItsUserThatHasEnded(t *testing.T) {
	tests := map[string]struct {
		change func(p *v1alpha1.AgenticSession)
		reason string
	}{
		"it runs":              {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionRunning }, v1alpha1.ReasonParentNotFinished},
		"it is stopped":        {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionStopped }, v1alpha1.ReasonParentNotFinished},
		"it is another user's": {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext.UserID = "bob" }, v1alpha1.ReasonParentOfOtherUser},
		"it is nobody's":       {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext = nil }, v1alpha1.ReasonParentOfOtherUser},
		"it has no workspace":  {func(p *v1alpha1.AgenticSession) { p.Status.WorkspaceClaim = "" }, v1alpha1.ReasonParentNoWorkspace},
		"it is on its way out": {func(p *v1alpha1.AgenticSession) {
			p.DeletionTimestamp = &p.CreationTimestamp
			p.DeletionTimestamp.Time = noon
		}, v1alpha1.ReasonParentNotFound},
		"it failed, which is ok": {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionFailed }, ""},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := continues(t)
			test.change(s.Parent)
			plan := s.wants(v1alpha1.SessionPending, test.reason)
			if (plan.Create != nil) != (test.reason == "") {
				t.Errorf("Job %v", plan.Create)
			}
		})
	}
	t.Run("there is none", func(t *testing.T) {
		s := continues(t)
		s.Parent = nil
		s.wants(v1alpha1.SessionPending, v1alpha1.ReasonParentNotFound)
		s.after(600*time.Second).wants(v1alpha1.SessionFailed, v1alpha1.ReasonParentNotFound)
	})
}

func TestASessionThatGoesOnHasItsParentsWorkspaceForGood(t *testing.T) {
	s := continues(t)
	plan := s.decide()
	if plan.Join != "before-workspace" || s.Session.Status.SDKSessionID != "sdk" {
		t.Errorf("claim %q, session %q", plan.Join, s.Session.Status.SDKSessionID)
	}
	for _, object := range plan.Apply {
		if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
			t.Error("it makes a claim of its own")
		}
	}
	if claim := plan.Create.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; claim == nil || claim.ClaimName != "before-workspace" {
		t.Errorf("the Job mounts %v", claim)
	}
	s.make(plan)
	s.Parent = nil
	s.exited(0, "").decide()
	s.changed(again).begin()
	if s.Session.Status.WorkspaceClaim != "before-workspace" {
		t.Error("it has lost its workspace with its parent")
	}
}

func TestNoTwoSessionsRunInOneWorkspace(t *testing.T) {
	s := continues(t)
	s.WorkspaceUser = "other"
	s.wants(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	s.after(24*time.Hour).wants(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	s.WorkspaceUser = ""
	s.begin().wants(v1alpha1.SessionCreating, "")
}
