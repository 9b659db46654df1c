package agenticsession

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newParentSession() *v1alpha1.AgenticSession {
	p := &v1alpha1.AgenticSession{}
	p.Name, p.UID, p.Spec.UserContext = "before", "parent", &v1alpha1.UserContext{UserID: "ann"}
	p.Status.Phase, p.Status.Workspace.ClaimRef.Name = v1alpha1.SessionCompleted, "before-workspace"
	p.Status.Result = &v1alpha1.SessionResult{SDKSessionID: "sdk"}
	return p
}

func newContinuingScenario(t *testing.T) *scenario {
	t.Helper()
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) {
		spec.ContinueFrom = &v1alpha1.LocalReference{Name: "before"}
		spec.UserContext = &v1alpha1.UserContext{UserID: "ann"}
	})
	s.Parent = newParentSession()
	claim := s.createClaim(&metav1.ObjectMeta{Name: "before-workspace", Labels: map[string]string{LabelSessionUID: "parent"}})
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "AgenticSession", UID: "parent"}}
	return s
}

func TestContinueFromRequiresFinishedSessionOfSameUser(t *testing.T) {
	tests := map[string]struct {
		change func(p *v1alpha1.AgenticSession)
		reason string
	}{
		"the parent runs":                    {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionRunning }, v1alpha1.ReasonParentNotFinished},
		"the parent is stopped":              {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionStopped }, v1alpha1.ReasonParentNotFinished},
		"the parent belongs to another user": {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext.UserID = "bob" }, v1alpha1.ReasonParentOwnedByOtherUser},
		"the parent has no user":             {func(p *v1alpha1.AgenticSession) { p.Spec.UserContext = nil }, v1alpha1.ReasonParentOwnedByOtherUser},
		"the parent has no workspace":        {func(p *v1alpha1.AgenticSession) { p.Status.Workspace.ClaimRef.Name = "" }, v1alpha1.ReasonParentHasNoWorkspace},
		"the parent is being deleted": {func(p *v1alpha1.AgenticSession) {
			p.DeletionTimestamp = &p.CreationTimestamp
			p.DeletionTimestamp.Time = testStartTime
		}, v1alpha1.ReasonParentNotFound},
		"a failed parent is accepted": {func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionFailed }, ""},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := newContinuingScenario(t)
			test.change(s.Parent)
			decision := s.wantPhase(v1alpha1.SessionPending, test.reason)
			if (decision.CreateJob != nil) != (test.reason == "") {
				t.Errorf("Job %v", decision.CreateJob)
			}
		})
	}
	t.Run("the parent does not exist", func(t *testing.T) {
		s := newContinuingScenario(t)
		s.Parent = nil
		s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonParentNotFound)
		s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonParentNotFound)
	})
}

func TestContinuingSessionKeepsWorkspaceOfParent(t *testing.T) {
	s := newContinuingScenario(t)
	decision := s.decideAndRecord()
	if decision.ShareClaim == nil || decision.ShareClaim.Name != "before-workspace" || s.Session.Status.Result.SDKSessionID != "sdk" {
		t.Errorf("claim %v, session %q", decision.ShareClaim, s.Session.Status.Result.SDKSessionID)
	}
	for _, object := range decision.ApplyObjects {
		if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
			t.Error("the session creates its own claim")
		}
	}
	if claim := decision.CreateJob.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim; claim == nil || claim.ClaimName != "before-workspace" {
		t.Errorf("the Job mounts %v", claim)
	}
	s.createPlannedJob(decision)
	s.Parent = nil
	s.exitRunner(0, "").decideAndRecord()
	s.updateSpec(requestNextRun).startAttempt()
	if s.Session.Status.Workspace.ClaimRef.Name != "before-workspace" {
		t.Error("the session lost the workspace when its parent was deleted")
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
