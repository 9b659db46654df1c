package integration

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
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
	mustCreate(t, other)
	s.patchSpec(`{"suspend": false}`)
	s.waitUntilWorkspaceInUse("debug")
	mustDelete(t, other)
	s.waitForPhase(v1alpha1.SessionCreating)
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
	mustDelete(t, parent.getSession())
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
		mustGet(t, key, object)
		deleted := object.GetUID()
		mustDelete(t, object)
		poll.Until(t, "the "+name+" to be created again", func() bool {
			return cluster.Get(t.Context(), key, object) == nil && object.GetUID() != deleted && metav1.IsControlledBy(object, s.getSession())
		})
	}
}
