package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// concurrentSessions is the number of sessions that exist at any time.
const concurrentSessions = 40

// childObjectLists returns lists of all kinds of objects that a session can have.
func childObjectLists() []client.ObjectList {
	return []client.ObjectList{
		&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ServiceList{},
		&corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{}, &coordinationv1.LeaseList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	}
}

// Sessions with all kinds of objects are created, and deleted at random times, while the operator is
// killed about every second. SESSION_ORPHANS sets the number of sessions.
func TestDeletedSessionsLeaveNoOrphansWhileTheOperatorIsKilled(t *testing.T) {
	ns := cluster.NewNamespace(t, "crash-", nil)
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser, runner.Spec.ActivityLease = "runner:1", new(int64(65532)), true
	require.NoError(t, cluster.Create(t.Context(), runner))

	end := runOperators(t, 1, time.Second, false, "--namespaces", ns)
	checker := ownerChecker{namespace: ns, kinds: map[string]int{}}
	all := testbuilder.NumberFromEnv(t, "SESSION_ORPHANS", 60)
	var existing []deletableSession
	for created := 0; created < all || len(existing) > 0; time.Sleep(20 * time.Millisecond) {
		for ; created < all && len(existing) < concurrentSessions; created++ {
			existing = append(existing, createDeletableSession(t, ns, created))
		}
		checker.checkAll(t)
		existing = slices.DeleteFunc(existing, func(m deletableSession) bool { return m.deleteIfDue(t) })
	}
	t.Logf("%d sessions were created and deleted with %d operators; observed objects: %v", all, len(end()), checker.kinds)
	waitForNoOrphans(t, ns)
	if len(checker.kinds) != len(childObjectLists()) {
		t.Errorf("of %d kinds only these were observed: %v", len(childObjectLists()), checker.kinds)
	}
}

// deletableSession is a session that the test deletes at a random time, or, if afterJob is set, not
// before its Job was observed.
type deletableSession struct {
	session  *v1alpha1.AgenticSession
	deleteAt time.Time
	afterJob bool
}

func createDeletableSession(t *testing.T, ns string, i int) deletableSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i), Namespace: ns}}
	s.Spec.Prompt, s.Spec.Interactive, s.Spec.Workspace = "do it", true, &v1alpha1.WorkspaceClaim{}
	require.NoError(t, cluster.Create(t.Context(), s))
	return deletableSession{session: s, deleteAt: time.Now().Add(rand.N(4 * time.Second)), afterJob: i%4 == 0}
}

func (m *deletableSession) deleteIfDue(t *testing.T) bool {
	t.Helper()
	if time.Now().Before(m.deleteAt) {
		return false
	}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(m.session), m.session))
	if m.afterJob && m.session.Status.Attempt.JobUID == "" && len(m.session.Status.Attempts) == 0 {
		return false
	}
	require.NoError(t, cluster.Delete(t.Context(), m.session))
	return true
}

// ownerChecker checks the owner references of all objects of sessions, and counts them by kind.
type ownerChecker struct {
	namespace string
	kinds     map[string]int
}

// checkAll checks that the garbage collector can follow all owner references. It does not find an
// owner whose apiVersion is not served.
func (o *ownerChecker) checkAll(t *testing.T) {
	t.Helper()
	for _, list := range childObjectLists() {
		require.NoError(t, cluster.List(t.Context(), list, client.InNamespace(o.namespace), client.HasLabels{agenticsession.LabelSessionUID}))
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("%T is not an object", item)
			}
			o.kinds[fmt.Sprintf("%T", object)]++
			return checkOwner(object)
		}); err != nil {
			t.Error(err)
		}
	}
}

func checkOwner(object client.Object) error {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return fmt.Errorf("%T %s has no controller", object, object.GetName())
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return err
	}
	if _, err := cluster.RESTMapper().RESTMapping(gv.WithKind(owner.Kind).GroupKind(), gv.Version); err != nil {
		return fmt.Errorf("%T %s: the kind of its owner is not served: %w", object, object.GetName(), err)
	}
	if owner.Kind == "AgenticSession" && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("%T %s blocks the deletion of its session", object, object.GetName())
	}
	return nil
}

// waitForNoOrphans waits until the garbage collector has deleted all objects, without an operator.
func waitForNoOrphans(t *testing.T, ns string) {
	t.Helper()
	if err := poll.UntilNil(t.Context(), func() error {
		left := map[string]int{}
		for _, list := range childObjectLists() {
			if err := cluster.List(t.Context(), list, client.InNamespace(ns), client.HasLabels{agenticsession.LabelSessionUID}); err != nil {
				return err
			}
			if n := meta.LenList(list); n > 0 {
				left[fmt.Sprintf("%T", list)] = n
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("orphans: %v", left)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Log("0 orphans")
}
