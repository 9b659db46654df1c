package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
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
	if os.Getenv("KUBECONFIG") == "" {
		t.Skip("KUBECONFIG is not set, so there is no cluster to test against: use make test-integration")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	cluster := connect(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	installCRDs(t, config)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crash-"}}
	if err := cluster.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns.Name}}
	runner.Spec.Image, runner.Spec.RunAsUser, runner.Spec.ActivityLease = "runner:1", new(int64(65532)), true
	if err := cluster.Create(ctx, runner); err != nil {
		t.Fatal(err)
	}

	kills := make(chan int, 1)
	killing, stopKilling := context.WithCancel(ctx)
	binary := build(t)
	go func() { kills <- runAndKill(killing, t, binary, ns.Name) }()
	checker := ownerChecker{cluster: cluster, namespace: ns.Name, kinds: map[string]int{}}
	all := testbuilder.NumberFromEnv(t, "SESSION_ORPHANS", 100)
	var existing []deletableSession
	for created := 0; created < all || len(existing) > 0; pause(ctx) {
		for ; created < all && len(existing) < concurrentSessions; created++ {
			existing = append(existing, createDeletableSession(ctx, t, cluster, ns.Name, created))
		}
		checker.checkAll(t)
		existing = slices.DeleteFunc(existing, func(m deletableSession) bool { return m.deleteIfDue(ctx, t, cluster) })
	}
	stopKilling()
	t.Logf("%d sessions were created and deleted while the operator was killed %d times; observed objects: %v", all, <-kills, checker.kinds)
	waitForNoOrphans(ctx, t, cluster, ns.Name)
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

func createDeletableSession(ctx context.Context, t *testing.T, cluster client.Client, ns string, i int) deletableSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i), Namespace: ns}}
	s.Spec.Prompt, s.Spec.Interactive, s.Spec.Workspace = "do it", true, &v1alpha1.SessionWorkspace{}
	if err := cluster.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	return deletableSession{session: s, deleteAt: time.Now().Add(rand.N(4 * time.Second)), afterJob: i%4 == 0}
}

func (m *deletableSession) deleteIfDue(ctx context.Context, t *testing.T, cluster client.Client) bool {
	t.Helper()
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	if time.Now().Before(m.deleteAt) {
		return false
	}
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(m.session), m.session); err != nil {
		t.Fatal(err)
	}
	if m.afterJob && m.session.Status.JobUID == "" && len(m.session.Status.Runs) == 0 {
		return false
	}
	if err := cluster.Delete(ctx, m.session); err != nil {
		t.Fatal(err)
	}
	return true
}

// ownerChecker checks the owner references of all objects of sessions, and counts them by kind.
type ownerChecker struct {
	cluster   client.Client
	namespace string
	kinds     map[string]int
}

// checkAll checks that the garbage collector can follow all owner references. It does not find an
// owner whose apiVersion is not served.
func (o *ownerChecker) checkAll(t *testing.T) {
	t.Helper()
	for _, list := range childObjectLists() {
		if err := o.cluster.List(t.Context(), list, client.InNamespace(o.namespace), client.HasLabels{session.LabelSessionUID}); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("%T is not an object", item)
			}
			o.kinds[fmt.Sprintf("%T", object)]++
			return o.checkOwner(object)
		}); err != nil {
			t.Error(err)
		}
	}
}

func (o *ownerChecker) checkOwner(object client.Object) error {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return fmt.Errorf("%T %s has no controller", object, object.GetName())
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return err
	}
	if _, err := o.cluster.RESTMapper().RESTMapping(gv.WithKind(owner.Kind).GroupKind(), gv.Version); err != nil {
		return fmt.Errorf("%T %s: the kind of its owner is not served: %w", object, object.GetName(), err)
	}
	if owner.Kind == "AgenticSession" && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("%T %s blocks the deletion of its session", object, object.GetName())
	}
	return nil
}

// waitForNoOrphans waits until the garbage collector has deleted all objects, without an operator.
func waitForNoOrphans(ctx context.Context, t *testing.T, cluster client.Client, ns string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; pause(ctx) {
		left := map[string]int{}
		for _, list := range childObjectLists() {
			if err := cluster.List(ctx, list, client.InNamespace(ns), client.HasLabels{session.LabelSessionUID}); err != nil {
				t.Fatal(err)
			}
			if n := meta.LenList(list); n > 0 {
				left[fmt.Sprintf("%T", list)] = n
			}
		}
		if len(left) == 0 {
			t.Log("0 orphans")
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("orphans: %v", left)
		}
	}
}
