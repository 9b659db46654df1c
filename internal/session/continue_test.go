package session

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newParentSession() *v1alpha1.AgenticSession {
	p := &v1alpha1.AgenticSession{}
	p.Name, p.Spec.UserContext = "before", &v1alpha1.UserContext{UserID: "ann"}
	p.Status.Phase, p.Status.WorkspaceClaim, p.Status.SDKSessionID = v1alpha1.SessionCompleted, "before-workspace", "sdk"
	return p
}

func newContinuingScenario(t *testing.T) *scenario {
	t.Helper()
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.ContinueFrom = &v1alpha1.SessionReference{Name: "before"}
		spec.UserContext = &v1alpha1.UserContext{UserID: "ann"}
	})
	s.Parent = newParentSession()
	return s
}

func TestContinueFromRequiresFinishedSessionOfSameUser(t *testing.T) {
	tests := map[string]struct {
		change func(p *v1alpha1.AgenticSession)
		reason string
	}{
		"it runs":              {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionRunning }, v1alpha1.ReasonParentNotFinished},
		"it is stopped":        {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionStopped }, v1alpha1.ReasonParentNotFinished},
		"it is another user's": {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext.UserID = "bob" }, v1alpha1.ReasonParentOwnedByOtherUser},
		"it is nobody's":       {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext = nil }, v1alpha1.ReasonParentOwnedByOtherUser},
		"it has no workspace":  {func(p *v1alpha1.AgenticSession) { p.Status.WorkspaceClaim = "" }, v1alpha1.ReasonParentHasNoWorkspace},
		"it is on its way out": {func(p *v1alpha1.AgenticSession) {
			p.DeletionTimestamp = &p.CreationTimestamp
			p.DeletionTimestamp.Time = testStartTime
		}, v1alpha1.ReasonParentNotFound},
		"it failed, which is ok": {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionFailed }, ""},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newContinuingScenario(t)
			test.change(s.Parent)
			plan := s.wantPhase(v1alpha1.SessionPending, test.reason)
			if (plan.CreateJob != nil) != (test.reason == "") {
				t.Errorf("Job %v", plan.CreateJob)
			}
		})
	}
	t.Run("there is none", func(t *testing.T) {
		s := newContinuingScenario(t)
		s.Parent = nil
		s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonParentNotFound)
		s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonParentNotFound)
	})
}

func TestContinuingSessionKeepsWorkspaceOfParent(t *testing.T) {
	s := newContinuingScenario(t)
	plan := s.decideAndRecord()
	if plan.ShareClaim != "before-workspace" || s.Session.Status.SDKSessionID != "sdk" {
		t.Errorf("claim %q, session %q", plan.ShareClaim, s.Session.Status.SDKSessionID)
	}
	for _, object := range plan.ApplyObjects {
		if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
			t.Error("it makes a claim of its own")
		}
	}
	if claim := plan.CreateJob.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; claim == nil || claim.ClaimName != "before-workspace" {
		t.Errorf("the Job mounts %v", claim)
	}
	s.createPlannedJob(plan)
	s.Parent = nil
	s.exitRunner(0, "").decideAndRecord()
	s.updateSpec(requestNextRun).startAttempt()
	if s.Session.Status.WorkspaceClaim != "before-workspace" {
		t.Error("it has lost its workspace with its parent")
	}
}

func TestOnlyOneSessionRunsInAWorkspace(t *testing.T) {
	s := newContinuingScenario(t)
	s.WorkspaceUser = "other"
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	s.advanceClock(24*time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	s.WorkspaceUser = ""
	s.startAttempt().wantPhase(v1alpha1.SessionCreating, "")
}
