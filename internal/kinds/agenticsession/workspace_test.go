package agenticsession

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

func setPersistent(spec *v1alpha1.AgenticSessionSpec) {
	spec.Workspace = &v1alpha1.WorkspaceClaim{}
}

func setRecreate(spec *v1alpha1.AgenticSessionSpec) {
	setPersistent(spec)
	spec.Workspace.OnLost = v1alpha1.LostWorkspaceRecreate
}

func newPodThatMounts(name, claim string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	pod.UID = types.UID(name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	pod.Status.Phase = corev1.PodRunning
	return pod
}

// admitPod decides until the newest Pod has no gate, as far as nothing else happens.
func (s *scenario) admitPod() *scenario {
	s.t.Helper()
	s.decideAndRecord()
	require.True(s.t, !isGated(s.newestPod()), "the Pod waits: %+v", s.Session.Status.Conditions)
	return s
}

func TestWaitingSessionDoesNotStartWhileAPodMountsItsWorkspace(t *testing.T) {
	for title, change := range map[string]func(pod *corev1.Pod){
		"a Pod of a deleted session": func(pod *corev1.Pod) {
			pod.Labels = map[string]string{LabelSession: "gone", LabelSessionUID: "gone"}
			pod.DeletionTimestamp = new(metav1.NewTime(testStartTime))
		},
		"a Pod of somebody else":       func(*corev1.Pod) {},
		"a Pod that has not started":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending },
		"a Pod on a lost node":         func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodUnknown },
		"a Pod that waits at its gate": func(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: WorkspaceGate}} },
	} {
		t.Run(title, func(t *testing.T) {
			s := newContinuingScenario(t)
			pod := newPodThatMounts("user", "before-workspace")
			change(&pod)
			s.otherPods = []corev1.Pod{newPodThatMounts("elsewhere", "another"), pod}
			decision := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
			require.True(t, decision.CreateJob == nil && s.Session.Status.Attempt.JobName == "", "it starts: %+v", decision)
			isWatched := pod.Labels[LabelSession] != ""
			require.True(t, (decision.RequeueAfter == 0) == isWatched, "the session is reconciled again after %s", decision.RequeueAfter)
			s.advanceClock(24*time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
			s.otherPods[1].Status.Phase = corev1.PodFailed
			s.startAttempt().admitPod()
		})
	}
}

func TestPodRunsOnlyWhenItsWorkspaceIsReservedForIt(t *testing.T) {
	s := newScenario(t, setPersistent).startAttempt()
	require.True(t, isGated(s.newestPod()) && !isGated(newScenario(t).startAttempt().newestPod()), "only a workspace that is kept has a gate")
	s.otherPods = []corev1.Pod{newPodThatMounts("user", "fix-workspace")}
	require.True(t, s.wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonWorkspaceInUse).ReserveWorkspace == nil, "it is reserved while another Pod runs")
	// The other Pod, for which it is reserved, still waits at its gate.
	s.otherPods[0].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: WorkspaceGate}}
	s.claims["fix-workspace"].Annotations = map[string]string{AnnotationWorkspacePod: string(s.otherPods[0].UID)}
	s.wantPhase(v1alpha1.SessionCreating, v1alpha1.ReasonWorkspaceInUse)
	s.claims["fix-workspace"].Annotations = nil
	r := s.wantPhase(v1alpha1.SessionCreating, "").ReserveWorkspace
	require.True(t, r != nil && r.Pod.UID == s.newestPod().UID && r.Claim.UID == s.Session.Status.Workspace.UID, "%+v", r)
	claim := s.claims["fix-workspace"]
	require.True(t, s.Session.Status.Workspace.UID == claim.UID, "the UID %s is recorded, want %s", s.Session.Status.Workspace.UID, claim.UID)
	s.startRunner().wantPhase(v1alpha1.SessionRunning, "")
}

// newStoppedScenario returns a session that used its workspace and was stopped.
func newStoppedScenario(t *testing.T, change func(spec *v1alpha1.AgenticSessionSpec)) *scenario {
	t.Helper()
	s := newScenario(t, change).startAttempt().admitPod().startRunner()
	s.updateSpec(suspend).reconcile().markJobDeleted().removeJobAndPod()
	s.wantPhase(v1alpha1.SessionStopped, "")
	s.updateSpec(resume)
	return s
}

// losses of a workspace.
var losses = map[string]struct {
	lose func(s *scenario)
	what string
}{
	"the claim was deleted": {func(s *scenario) { delete(s.claims, "fix-workspace") }, "no longer exists"},
	"the claim is being deleted": {func(s *scenario) {
		s.claims["fix-workspace"].DeletionTimestamp = new(metav1.NewTime(testStartTime))
	}, "is being deleted"},
	"the claim was replaced": {func(s *scenario) { s.createClaim(s.claims["fix-workspace"]) }, "was replaced by another one"},
}

func TestLostWorkspaceFailsTheRun(t *testing.T) {
	for title, loss := range losses {
		t.Run(title, func(t *testing.T) {
			s := newStoppedScenario(t, setPersistent)
			loss.lose(s)
			decision := s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost)
			message := decision.Status.Attempts[len(decision.Status.Attempts)-1].Message
			require.True(t, strings.Contains(message, loss.what), "message %q", message)
			require.True(t, decision.CreateJob == nil && len(decision.ApplyObjects) == 0, "the session starts")
			s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost)
			s.updateSpec(setRecreate).updateSpec(requestNextRun)
			delete(s.claims, "fix-workspace")
			s.startAttempt().admitPod()
		})
	}
	s := newStoppedScenario(t, setPersistent).startAttempt()
	delete(s.claims, "fix-workspace") // between its Job and its Pod
	require.True(t, len(s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost).DeleteJobs) == 1, "the Job is not deleted")
	s = newStoppedScenario(t, setPersistent).reconcile() // its Job is not created
	delete(s.claims, "fix-workspace")
	require.True(t, s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost).CreateJob == nil, "the Job is created")
}

func TestSessionThatAcceptsAnEmptyWorkspaceStartsWithOne(t *testing.T) {
	for title, loss := range losses {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, setRecreate).startAttempt().admitPod().startRunner().exitRunner(0, "").endJob("Complete", "").reconcile()
			s.updateSpec(requestNextRun)
			old := s.Session.Status.Workspace.UID
			loss.lose(s)
			if claim := s.claims["fix-workspace"]; claim != nil && !claim.DeletionTimestamp.IsZero() {
				decision := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceLost)
				require.True(t, decision.RequeueAfter != 0 && len(decision.DeleteJobs) == 1, "the Job keeps the claim, or the session does not look for its end")
				s.removeJobAndPod().advanceClock(24*time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceLost)
				delete(s.claims, "fix-workspace")
			}
			s.startAttempt()
			s.wantEvent(v1alpha1.EventWorkspaceLost)
			s.admitPod()
			uid := s.Session.Status.Workspace.UID
			require.True(t, uid != old && uid == s.claims["fix-workspace"].UID, "the UID %s is recorded, before %s", uid, old)
		})
	}
}

func TestLostWorkspaceOfAnOlderOperatorFailsTheRun(t *testing.T) {
	for _, title := range []string{"the claim was deleted", "the claim is being deleted"} {
		s := newStoppedScenario(t, setPersistent)
		s.Session.Status.Workspace.UID = "" // which did not record it
		claim := s.claims["fix-workspace"].DeepCopy()
		losses[title].lose(s)
		s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost)
		s.claims["fix-workspace"] = claim
		s.updateSpec(requestNextRun).startAttempt().admitPod()
		require.True(t, s.Session.Status.Workspace.UID == claim.UID, "%s: the UID is not recorded", title)
	}
}

func TestSessionWhoseFirstAttemptGotNoClaimCreatesIt(t *testing.T) {
	s := newScenario(t, setPersistent)
	s.decideAndRecord()
	delete(s.claims, "fix-workspace") // as if creating it was refused
	runner := s.Runner
	s.Runner = nil // the run fails before its Job is created
	s.reconcile().advanceClock(601 * time.Second).decideAndRecord()
	s.advanceClock(601*time.Second).wantPhase(v1alpha1.SessionFailed, "")
	s.Runner = runner
	s.updateSpec(requestNextRun).startAttempt().admitPod()
}

func TestWaitingSessionKeepsTheWorkspaceOfItsDeletedParent(t *testing.T) {
	s := newContinuingScenario(t)
	s.Parent.Status.Phase = v1alpha1.SessionRunning
	decision := s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonParentNotFinished)
	require.True(t, decision.ShareClaim != nil, "the waiting session does not own the workspace")
	s.Parent.DeletionTimestamp = new(metav1.NewTime(testStartTime))
	s.otherPods = []corev1.Pod{newPodThatMounts("parents", "before-workspace")}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	s.Parent, s.otherPods = nil, nil
	s.startAttempt().admitPod()
	require.True(t, s.Session.Status.Result.SDKSessionID == "sdk", "the session does not continue the conversation")
}

func TestWaitingSessionFailsWhenTheWorkspaceOfItsParentIsLost(t *testing.T) {
	s := newContinuingScenario(t)
	s.WorkspaceUser = "sibling"
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceInUse)
	delete(s.claims, "before-workspace")
	s.Parent = nil
	setRecreate(&s.Session.Spec) // an older CRD accepts it, but the session creates no workspace
	s.wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceLost)
}

func TestSessionWithTheNameOfTheParentIsNotTheParent(t *testing.T) {
	for title, change := range map[string]func(p *v1alpha1.AgenticSession){
		"of another user": func(p *v1alpha1.AgenticSession) { p.Spec.UserContext.UserID = "bob" },
		"with another claim of that name": func(p *v1alpha1.AgenticSession) {
			p.Status.Workspace.UID, p.Status.Phase = "another", v1alpha1.SessionRunning
		},
		"without a claim": func(p *v1alpha1.AgenticSession) { p.Status.Workspace.ClaimRef.Name = "" },
	} {
		t.Run(title, func(t *testing.T) {
			s := newContinuingScenario(t)
			s.WorkspaceUser = "sibling"
			s.decideAndRecord()
			s.WorkspaceUser = ""
			s.Parent = newParentSession()
			s.Parent.UID, s.Parent.Status.Result.SDKSessionID = "another", "another"
			change(s.Parent)
			s.startAttempt().admitPod()
			require.True(t, s.Session.Status.Result.SDKSessionID == "sdk", "it continues %q", s.Session.Status.Result.SDKSessionID)
		})
	}
}

// The claim was created with the retention Retain, or has work that was not pushed. With an owner, it would be deleted with the owner.
func TestAContinuedSessionDoesNotOwnAClaimThatIsKept(t *testing.T) {
	for title, creator := range map[string]string{"of the continued session": "parent", "that the continued session had continued": "first"} {
		s := newContinuingScenario(t)
		claim := s.claims["before-workspace"]
		claim.Labels, claim.OwnerReferences = map[string]string{LabelSessionUID: creator}, nil
		s.Parent.Status.Workspace.UID = map[string]types.UID{"first": claim.UID}[creator] // an older operator did not record that of its own claim
		decision := s.decideAndRecord()
		require.True(t, decision.ShareClaim == nil && decision.CreateJob != nil && s.Session.Status.Workspace.UID == claim.UID, "%s: %+v", title, decision)
	}
}

func TestClaimOfAnotherSessionIsNotUsed(t *testing.T) {
	s := newContinuingScenario(t)
	claim := s.claims["before-workspace"]
	claim.UID, claim.Labels, claim.OwnerReferences = "another", map[string]string{LabelSessionUID: "another"}, nil
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceNotFound)
	delete(s.claims, "before-workspace")
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonWorkspaceNotFound)
	s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonWorkspaceNotFound)
}

func TestAccessModeOfWorkspaceIsThatOfTheSessionRunner(t *testing.T) {
	for set, want := range map[corev1.PersistentVolumeAccessMode]corev1.PersistentVolumeAccessMode{
		"": corev1.ReadWriteOnce, corev1.ReadWriteOncePod: corev1.ReadWriteOncePod, corev1.ReadWriteMany: corev1.ReadWriteMany,
	} {
		s := newScenario(t, setPersistent)
		s.Runner.Spec.Workspace = v1alpha1.WorkspaceVolume{AccessMode: set}
		claim, isClaim := s.decideAndRecord().ApplyObjects[4].(*corev1.PersistentVolumeClaim)
		require.True(t, isClaim && claim.Spec.AccessModes[0] == want, "%q: %+v", set, claim)
	}
}

func TestDeletedObjectsOfARunningSessionAreRestored(t *testing.T) {
	s := newFullScenario(t)
	s.Pods = nil
	s.startAttempt().admitPod().startRunner()
	s.createNetworkPolicies(s.decideAndRecord())
	require.Equal(t, nil, objectKinds(s.decideAndRecord().ApplyObjects))
	for _, key := range []ChildKey{
		{"Service", "fix"}, {"ServiceAccount", "fix-session"}, {"Lease", "fix"}, {"Role", "fix-session"}, {"RoleBinding", "fix-session"},
	} {
		delete(s.Children, key)
		require.Equal(t, []string{key.Kind}, objectKinds(s.decideAndRecord().ApplyObjects))
	}
	for i := range 2 {
		policies := s.NetworkPolicies
		s.NetworkPolicies = policies[i : i+1]
		require.Equal(t, []string{"NetworkPolicy"}, objectKinds(s.decideAndRecord().ApplyObjects))
		s.NetworkPolicies = policies
	}
	s.exitRunner(0, "").decideAndRecord()
	clear(s.Children)
	require.Equal(t, nil, objectKinds(s.decideAndRecord().ApplyObjects))
	s = newRunningScenario(t).markJobDeleted().exitRunner(143, "") // by a user
	require.Equal(t, nil, objectKinds(s.decideAndRecord().ApplyObjects))
}

func TestDeletedInputsAreRestoredUntilTheRunnerStarts(t *testing.T) {
	s := newScenario(t).startAttempt()
	s.newestPod().Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Now)}}
	s.createNetworkPolicies(s.decideAndRecord())
	s.secretIsMissing = true
	decision := s.decideAndRecord()
	require.True(t, len(decision.ApplyObjects) == 0 && decision.RequeueAfter <= inputsCheckInterval && decision.RequeueAfter != 0, "%+v", decision)
	decision = s.advanceClock(inputsCheckInterval).decideAndRecord()
	require.Equal(t, inputsCheckInterval, decision.RequeueAfter)
	require.True(t, len(decision.ApplyObjects) == 1 && decision.ApplyObjects[0].GetName() == s.Session.Status.Attempt.InputsRef.Name, "%+v", decision)
	require.Equal(t, nil, objectKinds(s.startRunner().decideAndRecord().ApplyObjects))
}

func TestObjectThatCannotBeRestoredIsReported(t *testing.T) {
	s := newScenario(t, setInteractive).startAttempt().startRunner()
	s.createNetworkPolicies(s.decideAndRecord())
	delete(s.Children, ChildKey{"Service", "fix"})
	s.Refusal = decision.NameTaken(decision.Refusal{Kind: "Service", Name: "fix"}, "AgenticSession")
	d := s.wantPhase(v1alpha1.SessionRunning, "")
	s.wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	require.True(t, d.RequeueAfter != 0, "it is not tried again")
	delete(s.Children, ChildKey{"Service", "fix"})
	s.reconcile().wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	s.reconcile().wantCondition(v1alpha1.ConditionBlocked, metav1.ConditionFalse, v1alpha1.ReasonNotBlocked)
}

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
	check := func(title string, change func(p *v1alpha1.AgenticSession), reason string) {
		t.Run(title, func(t *testing.T) {
			s := newContinuingScenario(t)
			change(s.Parent)
			decision := s.wantPhase(v1alpha1.SessionPending, reason)
			require.True(t, (decision.CreateJob != nil) == (reason == ""), "Job %v", decision.CreateJob)
		})
	}
	check("the parent runs", func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionRunning }, v1alpha1.ReasonParentNotFinished)
	check("the parent is stopped", func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionStopped }, v1alpha1.ReasonParentNotFinished)
	check("the parent belongs to another user", func(p *v1alpha1.AgenticSession) { p.Spec.UserContext.UserID = "bob" }, v1alpha1.ReasonParentOwnedByOtherUser)
	check("the parent has no user", func(p *v1alpha1.AgenticSession) { p.Spec.UserContext = nil }, v1alpha1.ReasonParentOwnedByOtherUser)
	check("the parent has no workspace", func(p *v1alpha1.AgenticSession) { p.Status.Workspace.ClaimRef.Name = "" }, v1alpha1.ReasonParentHasNoWorkspace)
	check("the parent is being deleted", func(p *v1alpha1.AgenticSession) {
		p.DeletionTimestamp = &p.CreationTimestamp
		p.DeletionTimestamp.Time = testStartTime
	}, v1alpha1.ReasonParentNotFound)
	check("a failed parent is accepted", func(p *v1alpha1.AgenticSession) { p.Status.Phase = v1alpha1.SessionFailed }, "")
	s := newContinuingScenario(t)
	s.Parent = nil
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonParentNotFound)
	s.advanceClock(600*time.Second).wantPhase(v1alpha1.SessionFailed, v1alpha1.ReasonParentNotFound)
}

func TestContinuingSessionKeepsWorkspaceOfParent(t *testing.T) {
	s := newContinuingScenario(t)
	decision := s.decideAndRecord()
	require.True(t, decision.ShareClaim != nil && decision.ShareClaim.Name == "before-workspace" && s.Session.Status.Result.SDKSessionID == "sdk",
		"claim %v, session %q", decision.ShareClaim, s.Session.Status.Result.SDKSessionID)
	require.True(t, !slices.Contains(objectKinds(decision.ApplyObjects), "PersistentVolumeClaim"), "the session creates its own claim")
	claim := decision.CreateJob.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim
	require.True(t, claim != nil && claim.ClaimName == "before-workspace", "the Job mounts %v", claim)
	s.createPlannedJob(decision)
	s.Parent = nil
	s.exitRunner(0, "").reconcile().updateSpec(requestNextRun).startAttempt()
	require.True(t, s.Session.Status.Workspace.ClaimRef.Name == "before-workspace", "the session lost the workspace when its parent was deleted")
}
