package integration

import (
	"context"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
)

func setPersistentWorkspace(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
	s.Spec.Workspace = &v1alpha1.WorkspaceClaim{}
}

// continuing returns a change with which a session continues another one.
func continuing(name string) func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
	return func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.ContinueFrom = &v1alpha1.LocalReference{Name: name}
	}
}

// claim reads a claim of the session's namespace; nil if it does not exist.
func (s *sessionTest) claim(name string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, claim)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return claim
}

// waitUntilWorkspaceInUse waits until the session waits for a Pod, and checks that it has no Job meanwhile.
func (s *sessionTest) waitUntilWorkspaceInUse(pod string) {
	s.t.Helper()
	poll.Until(s.t, "the session to wait for Pod "+pod, func() bool {
		object := s.getSession()
		c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionBlocked)
		if object.Status.Attempt.JobName != "" && object.Status.Attempt.JobUID == "" {
			found := &corev1.Pod{}
			err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: pod}, found)
			s.t.Fatalf("the session starts Job %s while Pod %s is %q, %v", object.Status.Attempt.JobName, pod, found.Status.Phase, err)
		}
		return c != nil && c.Reason == v1alpha1.ReasonWorkspaceInUse && strings.Contains(c.Message, pod)
	})
}

// holdScheduledPod keeps the session's Pod as holdPod does, on a node without a kubelet: Kubernetes ends Pods without a
// node at once when they are deleted, and Pods on a node that does not exist soon after.
func (s *sessionTest) holdScheduledPod() *corev1.Pod {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "without-kubelet-"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	if err := cluster.Create(s.t.Context(), node); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := cluster.Delete(context.Background(), node); err != nil {
			s.t.Error(err)
		}
	})
	pod := s.waitForPod()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	// The operator, or a slow cache of the API server, may still gate the Pod.
	poll.Until(s.t, "the Pod to be bound", func() bool {
		err := cluster.SubResource("binding").Create(s.t.Context(), pod, binding.DeepCopy())
		if err != nil && !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
	s.holdPod()
	return pod
}

// releasePod removes what holdPod added.
func (s *sessionTest) releasePod(pod *corev1.Pod) {
	s.t.Helper()
	if err := client.IgnoreNotFound(cluster.Patch(s.t.Context(), pod.DeepCopy(), client.RawPatch(mergePatch, []byte(`{"metadata":{"finalizers":null}}`)))); err != nil {
		s.t.Fatal(err)
	}
	if err := client.IgnoreNotFound(cluster.Delete(s.t.Context(), pod, client.GracePeriodSeconds(0))); err != nil {
		s.t.Fatal(err)
	}
}

func TestSessionWaitsForThePodOfADeletedSessionInItsWorkspace(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	first := createSessionIn(t, ns, "first", setPersistentWorkspace)
	first.exitRunner(0, "")
	first.waitForPhase(v1alpha1.SessionCompleted)
	second := createSessionIn(t, ns, "second", continuing("first"))
	second.startRunner()
	second.waitForPhase(v1alpha1.SessionRunning)
	pod := second.holdScheduledPod()
	third := createSessionIn(t, ns, "third", continuing("first"))
	poll.Until(t, "the third session to wait for the second", func() bool {
		c := meta.FindStatusCondition(third.getSession().Status.Conditions, v1alpha1.ConditionBlocked)
		return c != nil && c.Reason == v1alpha1.ReasonWorkspaceInUse
	})
	if err := cluster.Delete(t.Context(), second.getSession()); err != nil {
		t.Fatal(err)
	}
	third.waitUntilWorkspaceInUse(pod.Name)
	if jobs := third.listJobs(); len(jobs) > 0 {
		t.Errorf("the third session has Job %s", jobs[0].Name)
	}
	second.releasePod(pod)
	third.waitForPhase(v1alpha1.SessionCreating)
}

func TestNextAttemptWaitsForThePodOfADeletedJob(t *testing.T) {
	t.Parallel()
	s := createSession(t, setPersistentWorkspace, func(s *v1alpha1.AgenticSession, _ *v1alpha1.SessionRunner) {
		s.Spec.Retry = &v1alpha1.SessionRetry{OnDisruption: true}
	})
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	pod := s.holdScheduledPod()
	job := s.listJobs()[0]
	if err := cluster.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	s.waitUntilWorkspaceInUse(pod.Name)
	s.releasePod(pod)
	poll.Until(t, "the second attempt", func() bool { return s.getSession().Status.Attempt.JobName == "fix-r1-a2" })
}

func TestSessionWaitsForAPodOfSomebodyElseInItsWorkspace(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	s := createSessionIn(t, ns, "fix", setPersistentWorkspace)
	s.waitForPod()
	s.waitForPhase(v1alpha1.SessionCreating)
	s.patchSpec(`{"suspend": true}`)
	s.waitForPhase(v1alpha1.SessionStopped)
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "debug"}}
	other.Spec.RuntimeClassName = new(unschedulableClass)
	other.Spec.Containers = []corev1.Container{{Name: "a", Image: "a"}}
	other.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "fix-workspace"},
	}}}
	if err := cluster.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.patchSpec(`{"suspend": false}`)
	s.waitUntilWorkspaceInUse("debug")
	if err := cluster.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.waitForPhase(v1alpha1.SessionCreating)
}

func TestPodStartsAfterItsWorkspaceIsReserved(t *testing.T) {
	t.Parallel()
	s := createSession(t, setPersistentWorkspace)
	pod := s.waitForPod()
	poll.Until(t, "the Pod's gate to be removed", func() bool {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		return len(pod.Spec.SchedulingGates) == 0
	})
	claim := s.claim("fix-workspace")
	if types.UID(claim.Annotations[agenticsession.AnnotationWorkspacePod]) != pod.UID || s.getSession().Status.Workspace.UID != claim.UID {
		t.Errorf("annotations %v, recorded UID %s", claim.Annotations, s.getSession().Status.Workspace.UID)
	}
}

func TestSessionWithoutItsWorkspaceFailsUnlessItAcceptsAnEmptyOne(t *testing.T) {
	t.Parallel()
	s := createSession(t, setPersistentWorkspace)
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	s.patchSpec(`{"suspend": true}`)
	s.waitForPhase(v1alpha1.SessionStopped)
	lost := s.claim("fix-workspace")
	if err := cluster.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	s.patchSpec(`{"suspend": false}`)
	failed := s.waitForPhase(v1alpha1.SessionFailed)
	if run := failed.Status.Attempts[len(failed.Status.Attempts)-1]; run.Reason != v1alpha1.ReasonWorkspaceLost {
		t.Errorf("%+v", run)
	}
	s.patchSpec(`{"workspace": {"onLost": "Recreate"}, "rerun": {"id": "2"}}`)
	s.waitForPod()
	poll.Until(t, "another claim to be recorded", func() bool {
		claim := s.claim("fix-workspace")
		return claim != nil && claim.UID != lost.UID && s.getSession().Status.Workspace.UID == claim.UID
	})
}

func TestDeletedParentLeavesItsWorkspaceToWaitingSessions(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	parent := createSessionIn(t, ns, "first", setPersistentWorkspace)
	parent.startRunner()
	parent.waitForPhase(v1alpha1.SessionRunning)
	waiting := []*sessionTest{createSessionIn(t, ns, "second", continuing("first")), createSessionIn(t, ns, "third", continuing("first"))}
	for _, s := range waiting {
		poll.Until(t, s.key.Name+" to own the workspace", func() bool {
			for _, owner := range s.claim("first-workspace").OwnerReferences {
				if owner.Name == s.key.Name {
					return true
				}
			}
			return false
		})
	}
	if err := cluster.Delete(t.Context(), parent.getSession()); err != nil {
		t.Fatal(err)
	}
	for range waiting {
		running := &sessionTest{t, client.ObjectKey{Namespace: ns}}
		poll.Until(t, "a waiting session to start", func() bool {
			for _, s := range waiting {
				if s.getSession().Status.Phase == v1alpha1.SessionCreating {
					running.key.Name = s.key.Name
					return true
				}
			}
			return false
		})
		running.exitRunner(0, "")
		running.waitForPhase(v1alpha1.SessionCompleted)
	}
}

func TestDeletedObjectsOfASessionAreCreatedAgainWhileItRuns(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(s *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		s.Spec.Interactive, r.Spec.ActivityLease = true, true
	})
	s.startRunner()
	s.waitForPhase(v1alpha1.SessionRunning)
	for name, object := range map[string]client.Object{
		"Service": &corev1.Service{}, "Lease": &coordinationv1.Lease{}, "ServiceAccount": &corev1.ServiceAccount{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
	} {
		key := client.ObjectKey{Namespace: s.key.Namespace, Name: "fix-session"}
		if name == "Service" || name == "Lease" {
			key.Name = "fix"
		}
		if err := cluster.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		deleted := object.GetUID()
		if err := cluster.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, "the "+name+" to be created again", func() bool {
			return cluster.Get(t.Context(), key, object) == nil && object.GetUID() != deleted && metav1.IsControlledBy(object, s.getSession())
		})
	}
}

func TestWorkspaceHasTheAccessModeOfItsSessionRunner(t *testing.T) {
	t.Parallel()
	s := createSession(t, setPersistentWorkspace, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		r.Spec.Workspace = v1alpha1.WorkspaceVolume{AccessMode: corev1.ReadWriteOncePod}
	})
	s.waitForPhase(v1alpha1.SessionCreating)
	if modes := s.claim("fix-workspace").Spec.AccessModes; len(modes) != 1 || modes[0] != corev1.ReadWriteOncePod {
		t.Errorf("access modes %v", modes)
	}
}
