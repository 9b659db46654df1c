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

// sessionsAtOnce is how many sessions there are at any time.
const sessionsAtOnce = 40

// ofSessions are lists of all that a session can be made of.
func ofSessions() []client.ObjectList {
	return []client.ObjectList{
		&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ServiceList{},
		&corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{}, &coordinationv1.LeaseList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	}
}

// Sessions that have all that a session can have are made, and deleted at any moment of their
// lives, while the operator is killed about every second. SESSION_ORPHANS is how many.
func TestNothingIsLeftOfDeletedSessionsWhileTheOperatorIsKilledEverySecond(t *testing.T) {
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
	installCRDs(t, cluster)
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
	seen := owned{cluster: cluster, namespace: ns.Name, kinds: map[string]int{}}
	all := testbuilder.Number(t, "SESSION_ORPHANS", 100)
	var alive []mortal
	for made := 0; made < all || len(alive) > 0; pause(ctx) {
		for ; made < all && len(alive) < sessionsAtOnce; made++ {
			alive = append(alive, bringInSession(ctx, t, cluster, ns.Name, made))
		}
		seen.check(t)
		alive = slices.DeleteFunc(alive, func(m mortal) bool { return m.deleteIfDue(ctx, t, cluster) })
	}
	stopKilling()
	t.Logf("%d sessions were made and deleted while the operator was killed %d times; seen of them: %v", all, <-kills, seen.kinds)
	wantNothingLeft(ctx, t, cluster, ns.Name)
	if len(seen.kinds) != len(ofSessions()) {
		t.Errorf("of %d kinds only these were seen: %v", len(ofSessions()), seen.kinds)
	}
}

// mortal is a session whose time comes: at any moment of its life, or for some not before it
// has had its Job.
type mortal struct {
	session *v1alpha1.AgenticSession
	due     time.Time
	late    bool
}

func bringInSession(ctx context.Context, t *testing.T, cluster client.Client, ns string, i int) mortal {
	t.Helper()
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%04d", i), Namespace: ns}}
	s.Spec.Prompt, s.Spec.Interactive, s.Spec.Workspace = "do it", true, &v1alpha1.SessionWorkspace{}
	if err := cluster.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	return mortal{session: s, due: time.Now().Add(rand.N(4 * time.Second)), late: i%4 == 0}
}

func (m *mortal) deleteIfDue(ctx context.Context, t *testing.T, cluster client.Client) bool {
	t.Helper()
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	if time.Now().Before(m.due) {
		return false
	}
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(m.session), m.session); err != nil {
		t.Fatal(err)
	}
	if m.late && m.session.Status.JobUID == "" && len(m.session.Status.Runs) == 0 {
		return false
	}
	if err := cluster.Delete(ctx, m.session); err != nil {
		t.Fatal(err)
	}
	return true
}

// owned is what was seen of sessions.
type owned struct {
	cluster   client.Client
	namespace string
	kinds     map[string]int
}

// check holds the owner references of what there is against what the garbage collector can
// follow: an owner whose apiVersion is not served is one that it never finds.
func (o *owned) check(t *testing.T) {
	t.Helper()
	for _, list := range ofSessions() {
		if err := o.cluster.List(t.Context(), list, client.InNamespace(o.namespace), client.HasLabels{session.LabelSessionUID}); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object, is := item.(client.Object)
			if !is {
				return fmt.Errorf("%T is no object", item)
			}
			o.kinds[fmt.Sprintf("%T", object)]++
			return o.checkOwner(object)
		}); err != nil {
			t.Error(err)
		}
	}
}

func (o *owned) checkOwner(object client.Object) error {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return fmt.Errorf("%T %s has no controller", object, object.GetName())
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return err
	}
	if _, err := o.cluster.RESTMapper().RESTMapping(gv.WithKind(owner.Kind).GroupKind(), gv.Version); err != nil {
		return fmt.Errorf("%T %s: its owner is of a kind that is not served: %w", object, object.GetName(), err)
	}
	if owner.Kind == "AgenticSession" && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return fmt.Errorf("%T %s keeps its session from being deleted", object, object.GetName())
	}
	return nil
}

// wantNothingLeft waits until the garbage collector has removed all, without an operator.
func wantNothingLeft(ctx context.Context, t *testing.T, cluster client.Client, ns string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; pause(ctx) {
		left := map[string]int{}
		for _, list := range ofSessions() {
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
