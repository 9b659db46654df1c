package sequentialjob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestWorkspaceIsCreatedBeforeTheFirstStep(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj())
	decision := s.decide(nil)
	if decision.CreateJob != nil || decision.Workspace == nil {
		t.Fatalf("want a workspace and no Job, got %v, %v", decision.Workspace, decision.CreateJob)
	}
	if got := decision.Workspace.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != "1Gi" {
		t.Errorf("want 1Gi, got %s", got.String())
	}
}

func TestEveryStepMountsTheWorkspace(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).Obj()
	for i := range sj.Spec.Containers {
		step := &sj.Spec.Containers[i]
		pod := podTemplate(sj, step).Spec
		want := []corev1.VolumeMount{{Name: "workspace", MountPath: "/workspace"}}
		if diff := cmp.Diff(want, pod.Containers[0].VolumeMounts); diff != "" {
			t.Errorf("mounts of %s (-want, +got):\n%s", step.Name, diff)
		}
		if got := pod.Volumes[0].PersistentVolumeClaim.ClaimName; got != WorkspaceName(sj) {
			t.Errorf("step %s mounts claim %s", step.Name, got)
		}
	}
}

func TestStepCanReplaceTheWorkspaceMount(t *testing.T) {
	elsewhere := testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	})
	sj := testbuilder.SequentialJob("a", "ns").Step("build", elsewhere).Workspace(v1alpha1.WorkspaceDelete).Obj()
	want := []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	if diff := cmp.Diff(want, podTemplate(sj, &sj.Spec.Containers[0]).Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want, +got):\n%s", diff)
	}
}

func TestRetainedWorkspaceHasNoOwner(t *testing.T) {
	tests := map[string]struct {
		retention  v1alpha1.WorkspaceRetention
		wantOwners int
	}{
		"Delete: the claim has an owner": {retention: v1alpha1.WorkspaceDelete, wantOwners: 1},
		"Retain: the claim has no owner": {retention: v1alpha1.WorkspaceRetain, wantOwners: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sj := testbuilder.SequentialJob("a", "ns").Step("build").Workspace(test.retention).Obj()
			claim := workspaceClaim(sj)
			if got := len(claim.OwnerReferences); got != test.wantOwners {
				t.Errorf("want %d owners, got %d", test.wantOwners, got)
			}
			if !decision.WasCreatedFor(sj, claim, v1alpha1.LabelSequentialJobUID) {
				t.Error("the claim is not recognized")
			}
		})
	}
}

func TestClaimOfAnotherOwnerIsRecognized(t *testing.T) {
	mine := testbuilder.SequentialJob("a", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
	other := testbuilder.SequentialJob("b", "ns").Step("build").Workspace(v1alpha1.WorkspaceDelete).Obj()
	labelled := workspaceClaim(other)
	labelled.Labels[v1alpha1.LabelSequentialJobUID] = string(mine.UID)
	tests := map[string]*corev1.PersistentVolumeClaim{
		"a claim without an owner":                        {},
		"a claim of another SequentialJob":                workspaceClaim(other),
		"a claim of another SequentialJob with our label": labelled,
	}
	for name, claim := range tests {
		t.Run(name, func(t *testing.T) {
			if decision.WasCreatedFor(mine, claim, v1alpha1.LabelSequentialJobUID) {
				t.Error("the claim is recognized as ours")
			}
		})
	}
}

// startWithWorkspace starts a sequence of two steps, whose first step has ended, with the run suspended.
func startWithWorkspace(t *testing.T, sj *testbuilder.SequentialJobBuilder) *testEnv {
	s := startRun(t, sj.Step("one").Step("two").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete))
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true })
	s.succeedStep("one")
	return s
}

func (s *testEnv) resumeRun() Decision {
	s.t.Helper()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = false })
	return s.reconcile()
}

func (s *testEnv) terminateClaim() { s.claim.DeletionTimestamp = new(metav1.NewTime(s.now)) }

// restoreClaim replaces the claim by one from a backup.
func (s *testEnv) restoreClaim() { s.claim.UID = "restored" }

func TestLostWorkspaceFailsTheRun(t *testing.T) {
	tests := map[string]struct {
		lose func(*testEnv)
		want string
	}{
		"the claim does not exist":   {func(s *testEnv) { s.claim = nil }, "no longer exists"},
		"the claim is being deleted": {(*testEnv).terminateClaim, "is being deleted"},
		"the claim was replaced":     {(*testEnv).restoreClaim, "was replaced by another one"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startWithWorkspace(t, testbuilder.SequentialJob("a", "ns"))
			test.lose(s)
			if decision := s.resumeRun(); decision.Workspace != nil || decision.CreateJob != nil {
				t.Errorf("the run creates the claim %v and the Job %v", decision.Workspace, decision.CreateJob)
			}
			// Steps of finally would run without the files as well.
			s.wantSteps("one: Succeeded", "two: Failed, WorkspaceLost", "cleanup: Failed, WorkspaceLost")
			s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost)
			if got := s.stepStatus("two").Message; !strings.Contains(got, WorkspaceName(s.sj)+" with the workspace "+test.want) {
				t.Errorf("message %q, want the claim and %q", got, test.want)
			}
			s.wantCreated("one")
		})
	}
}

func TestLostWorkspaceIsNotATolerableFailure(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Step("two", testbuilder.ContinueOnFailure()).Step("three").Workspace(v1alpha1.WorkspaceDelete))
	s.claim = nil
	s.succeedStep("one")
	s.wantSteps("one: Succeeded", "two: Failed, WorkspaceLost", "three: Skipped, PreviousStepFailed")
}

func TestLostWorkspaceRestartsTheRunIfTheSpecSaysSo(t *testing.T) {
	s := startWithWorkspace(t, testbuilder.SequentialJob("a", "ns").RecreateLostWorkspace())
	old, started := s.claim.UID, *s.sj.Status.StartTime
	s.terminateClaim()
	s.events = nil
	s.resumeRun()
	s.wantSteps("one: Pending", "two: Pending", "cleanup: Pending")
	s.wantEvents(v1alpha1.EventSpecChanged, v1alpha1.EventRerunStarted, v1alpha1.EventResumed, v1alpha1.EventWorkspaceLost)

	s.reconcile()
	s.wantSteps("one: Starting, WorkspaceTerminating", "two: Pending", "cleanup: Pending")
	s.wantCreated("one") // no Job uses a claim that is being deleted
	s.wantCondition(v1alpha1.ConditionBlocked, "True WorkspaceTerminating: step \"one\": PersistentVolumeClaim "+WorkspaceName(s.sj)+
		" is being deleted, and exists as long as a Pod that uses it; delete these Pods, including finished ones")
	if job := s.newestJob("one"); job.DeletionTimestamp.IsZero() {
		t.Error("the Job of the first run remains, and with its Pod the claim")
	}
	if wait := s.reconcile().RequeueAfter; wait == 0 || wait > minBlockedRetry {
		t.Errorf("the next decision is after %s, want %s", wait, minBlockedRetry)
	}

	s.removeDeletedJobs()
	s.claim = nil
	s.reconcileAfter(time.Second)
	s.reconcile()
	s.wantCreated("one", "one")
	s.wantCondition(v1alpha1.ConditionBlocked, "False NotBlocked: ")
	if s.claim.UID == old || s.sj.Status.Workspace.UID != s.claim.UID || s.sj.Status.Run != 2 {
		t.Errorf("run %d uses claim %s, recorded as %s", s.sj.Status.Run, s.claim.UID, s.sj.Status.Workspace.UID)
	}
	if !s.sj.Status.StartTime.Equal(&started) {
		t.Errorf("the deadline counts from %s, want %s: it limits all restarts together", s.sj.Status.StartTime, started)
	}
	s.succeedStep("one")
	s.succeedStep("two")
	s.succeedStep("cleanup")
	s.wantPhase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted)
}

func TestJobsAreNotDeletedForANewWorkspaceUnlessTheSpecSaysSo(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Workspace(v1alpha1.WorkspaceDelete))
	s.succeedStep("one")
	s.terminateClaim()
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "1"}, From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	s.wantSteps("one: Starting, WorkspaceTerminating")
	if job := s.newestJob("one"); !job.DeletionTimestamp.IsZero() {
		t.Error("the Job of the first run is deleted, with its logs")
	}
}

// The other steps have their outcomes: a failed run must not become a successful one.
func TestWorkspaceThatIsLostBeforeFinallyFailsTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).RecreateLostWorkspace())
	s.claim = nil
	s.succeedStep("one")
	s.wantSteps("one: Succeeded", "cleanup: Failed, WorkspaceLost")
	s.wantPhase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost)
}

func TestRerunFromALaterStepNeedsTheWorkspaceOfTheRunBefore(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Step("two").Workspace(v1alpha1.WorkspaceDelete))
	s.succeedStep("one")
	s.failStep("two")
	s.claim = nil
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "1"}, From: v1alpha1.RerunFromFailed}
	})
	s.reconcile()
	s.wantSteps("one: Succeeded", "two: Failed, WorkspaceLost")
	s.events = nil

	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	s.wantSteps("one: Starting", "two: Pending")
	s.wantEvents(v1alpha1.EventRerunStarted, v1alpha1.EventWorkspaceLost, v1alpha1.EventJobStarted)
}

func TestSuspendedJobIsNotResumedWithoutItsWorkspace(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Workspace(v1alpha1.WorkspaceDelete).SuspendImmediately())
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = true })
	s.reconcile()
	testbuilder.Job(s.newestJob("one")).Suspended(s.now)
	s.reconcile()
	s.wantSteps("one: Suspended")
	s.claim = nil
	if decision := s.resumeRun(); decision.ResumeJob != nil {
		t.Error("the Job is resumed")
	}
	s.removeDeletedJobs()
	s.wantSteps("one: Failed, WorkspaceLost")
}

// An older operator did not record the UID.
func TestWorkspaceOfAnOlderOperatorIsRecordedOrLost(t *testing.T) {
	tests := map[string]struct {
		lose func(*testEnv)
		want string
	}{
		"the claim exists":              {func(*testEnv) {}, "two: Starting"},
		"the claim does not exist":      {func(s *testEnv) { s.claim = nil }, "two: Failed, WorkspaceLost"},
		"the claim is of another owner": {func(s *testEnv) { s.claim.OwnerReferences, s.claim.Labels = nil, nil }, "two: Failed, WorkspaceLost"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("one").Step("two").Workspace(v1alpha1.WorkspaceDelete))
			s.sj.Status.Workspace.UID = ""
			test.lose(s)
			s.succeedStep("one")
			s.wantSteps("one: Succeeded", test.want)
		})
	}
}

func TestClaimThatAQuotaRefusesIsWaitedFor(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("one").Workspace(v1alpha1.WorkspaceDelete).Obj())
	s.claimRefusal = &decision.Refusal{Class: decision.QuotaExceeded, Kind: "PersistentVolumeClaim", Message: "exceeded quota"}
	s.reconcile()
	s.wantCondition(v1alpha1.ConditionResourcesUnavailable, "True QuotaExceeded: exceeded quota")
	s.events = nil
	if d := s.reconcileAfter(time.Second); d.RequeueAfter != minBlockedRetry {
		t.Errorf("the next attempt is after %s, want %s", d.RequeueAfter, minBlockedRetry)
	}
	s.wantEvents() // the condition has not changed between the attempts
	s.claimRefusal = nil
	s.reconcileAfter(time.Second)
	s.wantCreated("one")
}

func TestForeignObjectWithTheNameOfTheWorkspaceIsAConflict(t *testing.T) {
	s := newTestEnv(t, testbuilder.SequentialJob("a", "ns").Step("one").Workspace(v1alpha1.WorkspaceDelete).Obj())
	s.claim = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "foreign"}}
	s.reconcile()
	s.wantSteps("one: Starting, NameTaken")
	s.wantCreated()
	if blockedReason(&s.sj.Status) != v1alpha1.ReasonNameTaken {
		t.Errorf("conditions %+v, want NameConflict", s.sj.Status.Conditions)
	}
}
