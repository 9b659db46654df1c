package sequentialjob

import (
	"fmt"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func needsApprovalBefore() testbuilder.StepOption {
	return testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.RequireApproval = true })
}

func (s *testEnv) approve(run int, step, user string) Decision {
	s.t.Helper()
	s.sj.Annotations = map[string]string{v1alpha1.AnnotationApproval: fmt.Sprintf(`{"run":%d,"step":%q,"by":%q}`, run, step, user)}
	return s.reconcile()
}

func TestStepWaitsForItsApproval(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("deploy", needsApprovalBefore()).Step("verify"))
	s.succeedStep("build")
	s.reconcileAfter(time.Hour)
	s.wantCreated("build")
	s.wantSteps("build: Succeeded", "deploy: Pending, ApprovalRequired", "verify: Pending")
	message := "step \"deploy\" waits for an approval; run `kubectl yardmaster seq approve a`"
	s.wantCondition(v1alpha1.ConditionSuspended, "True ApprovalRequired: "+message)
	s.wantPhase(v1alpha1.PhaseSuspended, v1alpha1.ReasonApprovalRequired)
	s.wantCondition(v1alpha1.ConditionReconciling, "False ApprovalRequired: "+message)
	if s.sj.Status.Reason != v1alpha1.ReasonApprovalRequired || len(s.sj.Finalizers) != 0 {
		t.Errorf("reason %q, finalizers %v", s.sj.Status.Reason, s.sj.Finalizers)
	}
	s.wantEvents(v1alpha1.EventJobStarted, v1alpha1.EventJobCompleted, v1alpha1.EventSuspended)

	s.approve(1, "deploy", "ada")
	s.wantCreated("build", "deploy")
	if by := s.stepStatus("deploy").ApprovedBy; by != "ada" {
		t.Errorf("approved by %q", by)
	}
	s.wantPhase(v1alpha1.PhaseRunning, v1alpha1.ReasonRunning)
	s.wantEvents(v1alpha1.EventResumed, v1alpha1.EventJobStarted)
	s.succeedStep("deploy")
	s.succeedStep("verify")
	if by := s.stepStatus("deploy").ApprovedBy; by != "ada" {
		t.Errorf("after the run: approved by %q", by)
	}
}

func TestApprovalOfAnotherStepOrRunHasNoEffect(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("deploy", needsApprovalBefore()))
	for name, annotation := range map[string]string{
		"another step": `{"run":1,"step":"build","by":"ada"}`,
		"another run":  `{"run":2,"step":"deploy","by":"ada"}`,
		"no user":      `{"run":1,"step":"deploy"}`,
		"no JSON":      `deploy`,
	} {
		s.sj.Annotations = map[string]string{v1alpha1.AnnotationApproval: annotation}
		s.reconcile()
		if len(s.createdSteps) != 0 {
			t.Fatalf("%s: the step starts", name)
		}
	}
}

func TestEachRunNeedsItsOwnApproval(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("deploy", needsApprovalBefore()))
	s.approve(1, "deploy", "ada")
	s.failStep("deploy")
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "again"}}
	})
	s.reconcile()
	s.wantSteps("deploy: Pending, ApprovalRequired")
	s.approve(2, "deploy", "grace")
	s.wantCreated("deploy", "deploy")
}

func TestAnotherAttemptNeedsNoOtherApproval(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("deploy", needsApprovalBefore()).RerunLostJobs())
	s.approve(1, "deploy", "ada")
	s.loseJob("deploy")
	s.wantCreated("deploy", "deploy")
	if by := s.stepStatus("deploy").ApprovedBy; by != "ada" {
		t.Errorf("approved by %q", by)
	}
}

func TestDeadlineRestartsWithTheApproval(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Step("deploy", needsApprovalBefore()).ActiveDeadline(60))
	s.succeedStep("build")
	s.reconcileAfter(time.Hour)
	s.wantSteps("build: Succeeded", "deploy: Pending, ApprovalRequired")
	s.approve(1, "deploy", "ada")
	if start := s.sj.Status.StartTime; !start.Time.Equal(s.now) {
		t.Errorf("the deadline counts from %s, want %s", start, s.now)
	}
	s.reconcileAfter(2 * time.Minute)
	s.wantSteps("build: Succeeded", "deploy: Stopping, DeadlineExceeded")
}

func TestSuspensionAndApprovalAreIndependent(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("deploy", needsApprovalBefore()).Suspend())
	s.approve(1, "deploy", "ada")
	s.wantCreated()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	s.reconcile()
	s.wantCreated("deploy")
}
