package sequentialjob

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestWorkspaceIsCreatedBeforeTheFirstStep(t *testing.T) {
	s := newTestEnv(t, sequence("build").Workspace(v1alpha1.WorkspaceDelete).Obj())
	decision := s.decide(nil)
	require.True(t, decision.CreateJob == nil && decision.Workspace != nil, "want a workspace and no Job: %+v", decision)
	if got := decision.Workspace.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != "1Gi" || len(decision.Workspace.OwnerReferences) != 1 {
		t.Errorf("want 1Gi and an owner, got %s and %v", got.String(), decision.Workspace.OwnerReferences)
	}
	retained := workspaceClaim(sequence("build").Workspace(v1alpha1.WorkspaceRetain).Obj())
	require.True(t, len(retained.OwnerReferences) == 0 && retained.Labels[v1alpha1.LabelSequentialJobUID] != "",
		"want a label instead of an owner, got %+v", retained.ObjectMeta)
}

func TestEveryStepMountsTheWorkspaceUnlessItMountsSomethingElseThere(t *testing.T) {
	elsewhere := testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/workspace"}}
	})
	sj := sequence("build").Step("test", elsewhere).Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).Obj()
	for i, volume := range []string{"workspace", "scratch", "workspace"} {
		step := &sj.Spec.Containers[i]
		pod := podTemplate(sj, step).Spec
		assert.Equal(t, "mounts of "+step.Name, []corev1.VolumeMount{{Name: volume, MountPath: "/workspace"}}, pod.Containers[0].VolumeMounts)
		assert.Equal(t, "claim of "+step.Name, WorkspaceName(sj), pod.Volumes[0].PersistentVolumeClaim.ClaimName)
	}
}

// withWorkspace returns a sequence of two steps and a finally step with a workspace.
func withWorkspace() *testbuilder.SequentialJobBuilder {
	return sequence("one", "two").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete)
}

func loseClaim(s *testEnv) { s.claim = nil }

func terminateClaim(s *testEnv) { s.claim.DeletionTimestamp = new(metav1.NewTime(s.now)) }

func TestLostWorkspaceFailsTheRun(t *testing.T) {
	// Steps of finally would run without the files as well.
	lost := steps("one: Succeeded", "two: Failed, WorkspaceLost", "cleanup: Failed, WorkspaceLost")
	fails := func(lose func(*testEnv), message string) story {
		return story{
			suspendRun, succeed("one"), lose, resumeRun, lost, created("one"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost),
			func(s *testEnv) {
				got, want := s.stepStatus("two").Message, WorkspaceName(s.sj)+" with the workspace "+message
				require.True(s.t, strings.Contains(got, want) && s.createdClaims == 1,
					"message %q, want %q; %d claims are created", got, want, s.createdClaims)
			},
		}
	}
	ofOlderOperator := func(s *testEnv) { s.sj.Status.Workspace.UID = "" } // which did not record the UID
	runScenarios(t, map[string]scenario{
		"the claim does not exist":   {withWorkspace(), fails(loseClaim, "no longer exists")},
		"the claim is being deleted": {withWorkspace(), fails(terminateClaim, "is being deleted")},
		"the claim was replaced by one from a backup": {
			withWorkspace(), fails(func(s *testEnv) { s.claim.UID = "restored" }, "was replaced by another one"),
		},
		"whatever failures are tolerated": {
			sequence("one").Step("two", testbuilder.ContinueOnFailure()).Step("three").Workspace(v1alpha1.WorkspaceDelete), story{
				loseClaim, succeed("one"), steps("one: Succeeded", "two: Failed, WorkspaceLost", "three: Skipped, PreviousStepFailed"),
			},
		},
		// A failed run must not become a successful one.
		"also with Recreate before finally, as the other steps have their outcomes": {
			sequence("one").Finally("cleanup").Workspace(v1alpha1.WorkspaceDelete).RecreateLostWorkspace(), story{
				loseClaim, succeed("one"), steps("one: Succeeded", "cleanup: Failed, WorkspaceLost"),
				phase(v1alpha1.PhaseFailed, v1alpha1.ReasonWorkspaceLost),
			},
		},
		"also a rerun from a later step, but not one from the start": {sequence("one", "two").Workspace(v1alpha1.WorkspaceDelete), story{
			succeed("one"), fail("two"), loseClaim, rerun("Failed"), steps("one: Succeeded", "two: Failed, WorkspaceLost"),
			forgetEvents, rerun("Start"), steps("one: Starting", "two: Pending"),
			events(v1alpha1.EventRerunStarted, v1alpha1.EventWorkspaceLost, v1alpha1.EventJobStarted),
		}},
		"a Job that was suspended is not resumed": {sequence("one").Workspace(v1alpha1.WorkspaceDelete).SuspendImmediately(), story{
			suspendRun, func(s *testEnv) { testbuilder.Job(s.newestJob("one")).Suspended(s.now) }, wait(0), steps("one: Suspended"),
			loseClaim, resumeRun,
			func(s *testEnv) { assert.Equal(s.t, "the Job is suspended", true, isSuspended(s.newestJob("one"))) },
			removeJobs, steps("one: Failed, WorkspaceLost"),
		}},
		"not one of an older operator whose claim exists": {withWorkspace(), story{
			ofOlderOperator, succeed("one"), steps("one: Succeeded", "two: Starting", "cleanup: Pending"),
		}},
		"one of an older operator whose claim does not exist": {withWorkspace(), story{ofOlderOperator, loseClaim, succeed("one"), lost}},
		"one of an older operator whose claim is of another owner": {withWorkspace(), story{
			ofOlderOperator, func(s *testEnv) { s.claim.OwnerReferences, s.claim.Labels = nil, nil }, succeed("one"), lost,
		}},
		"a claim that is being deleted is waited for in a rerun, without deleting the Job and its logs": {
			sequence("one").Workspace(v1alpha1.WorkspaceDelete), story{
				succeed("one"), terminateClaim, rerun("Start"), steps("one: Starting, WorkspaceTerminating"),
				func(s *testEnv) {
					require.True(s.t, s.newestJob("one").DeletionTimestamp.IsZero(), "the Job of the first run is deleted, with its logs")
				},
			},
		},
	})
}

func TestLostWorkspaceRestartsTheRunIfTheSpecSaysSo(t *testing.T) {
	s := startRun(t, withWorkspace().RecreateLostWorkspace()).pass(suspendRun, succeed("one"))
	old, started := s.claim.UID, *s.sj.Status.StartTime
	s.events = nil
	s.pass(
		terminateClaim, resumeRun, steps("one: Pending", "two: Pending", "cleanup: Pending"),
		events(v1alpha1.EventSpecChanged, v1alpha1.EventRerunStarted, v1alpha1.EventResumed, v1alpha1.EventWorkspaceLost),
		wait(0), steps("one: Starting, WorkspaceTerminating", "two: Pending", "cleanup: Pending"), created("one"), // no Job uses this claim
		hasCondition(v1alpha1.ConditionBlocked, "True WorkspaceTerminating: step \"one\": PersistentVolumeClaim "+WorkspaceName(s.sj)+
			" is being deleted, and exists as long as a Pod that uses it; delete these Pods, including finished ones"),
	)
	require.True(t, !s.newestJob("one").DeletionTimestamp.IsZero(), "the Job of the first run remains, and with its Pod the claim")
	if wait := s.reconcile().RequeueAfter; wait == 0 || wait > minBlockedRetry {
		t.Errorf("the next decision is after %s, want %s", wait, minBlockedRetry)
	}

	s.pass(removeJobs, loseClaim, wait(time.Second), wait(0), created("one", "one"), hasCondition(v1alpha1.ConditionBlocked, "False NotBlocked: "))
	require.True(t, s.claim.UID != old && s.sj.Status.Workspace.UID == s.claim.UID && s.sj.Status.Run == 2,
		"run %d uses claim %s, recorded as %s", s.sj.Status.Run, s.claim.UID, s.sj.Status.Workspace.UID)
	require.True(t, s.sj.Status.StartTime.Equal(&started),
		"the deadline counts from %s, want %s: it limits all restarts together", s.sj.Status.StartTime, started)
	s.pass(succeed("one", "two", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
}

func TestForeignObjectWithTheNameOfTheWorkspaceIsAConflict(t *testing.T) {
	s := newTestEnv(t, sequence("one").Workspace(v1alpha1.WorkspaceDelete).Obj())
	s.claim = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "foreign"}}
	s.pass(wait(0), steps("one: Starting, NameTaken"), created())
}
