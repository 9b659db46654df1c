package integration

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/require"
)

// sharedObject is an object that all revisions of a pool share.
type sharedObject struct {
	object client.Object
	// externalPatch is an external change, and isRestored reports whether the operator reverted it.
	externalPatch string
	isRestored    func() bool
}

// sharedObjectsOf returns the shared objects of the pool mailers, by kind.
func sharedObjectsOf(c *poolTestEnv) map[string]*sharedObject {
	named := metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}
	config, service := &corev1.ConfigMap{ObjectMeta: named}, &corev1.Service{ObjectMeta: named}
	account, budget := &corev1.ServiceAccount{ObjectMeta: named}, &policyv1.PodDisruptionBudget{ObjectMeta: named}
	network := &networkingv1.NetworkPolicy{ObjectMeta: named}
	selects := func(labels map[string]string) bool {
		return len(labels) == 1 && labels[workerpool.LabelWorkerPool] == "mailers"
	}
	return map[string]*sharedObject{
		"ConfigMap": {config, `{"data":{"concurrency":"99","queues":null}}`, func() bool {
			return config.Data["concurrency"] == "2" && config.Data["queues"] != ""
		}},
		"Service": {service, `{"spec":{"selector":{"yardmaster.dev/workerpool":"others"}}}`, func() bool { return selects(service.Spec.Selector) }},
		"ServiceAccount": {account, `{"automountServiceAccountToken":true}`, func() bool {
			return account.AutomountServiceAccountToken != nil && !*account.AutomountServiceAccountToken
		}},
		"NetworkPolicy":       {network, `{"spec":{"ingress":[{}]}}`, func() bool { return len(network.Spec.Ingress) == 2 && len(network.Spec.Ingress[0].From) == 1 }},
		"PodDisruptionBudget": {budget, `{"spec":{"maxUnavailable":"100%"}}`, func() bool { return *budget.Spec.MaxUnavailable == intstr.FromInt32(1) }},
	}
}

func newPoolWithTwoWorkers(t *testing.T) *poolTestEnv {
	t.Helper()
	c := newPoolTestEnv(t)
	c.createPool("mailers", "autoscaling: {minReplicas: 2, maxReplicas: 2}")
	c.waitForPool("mailers", "rolled out", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Ready == 2 && wp.Status.CurrentRevision != "" && wp.Status.CurrentRevision == wp.Status.UpdatedRevision
	})
	return c
}

// waitForObject waits until the object exists and the condition is true.
func (c *poolTestEnv) waitForObject(what string, object client.Object, holds func() bool) {
	c.t.Helper()
	c.waitFor(what, func() bool {
		err := cluster.Get(c.t.Context(), client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			c.t.Fatal(err)
		}
		return err == nil && holds()
	})
}

func TestExternalChangesOfAPoolAreReverted(t *testing.T) {
	t.Parallel()
	c := newPoolWithTwoWorkers(t)
	objects := sharedObjectsOf(c)
	for kind, p := range objects {
		c.waitForObject("the "+kind+" to be created", p.object, p.isRestored)
	}
	t.Run("without changes, only the status is written", c.writesOnlyTheStatus)
	t.Run("of a revision", c.restoresItsRevision)
	for kind, p := range objects {
		t.Run("of its "+kind, func(t *testing.T) {
			mustPatch(t, p.object, client.RawPatch(mergePatch, []byte(p.externalPatch)))
			changed := time.Now()
			c.waitForObject("the "+kind+" to be restored", p.object, p.isRestored)
			assertWithin(t, "the "+kind+" is restored", 5*time.Second, changed)

			old := p.object.GetUID()
			mustDelete(t, p.object)
			c.waitForObject("the "+kind+" to be recreated", p.object, func() bool { return p.object.GetUID() != old && p.isRestored() })
			require.True(t, metav1.IsControlledBy(p.object, c.getPool("mailers")), "it is not controlled by the pool")
		})
	}
}

func (c *poolTestEnv) writesOnlyTheStatus(t *testing.T) {
	var writes atomic.Pointer[string]
	c.observeRequest.Store(new(func(r *http.Request) {
		isExpected := strings.Contains(r.URL.Path, "/queues/") || strings.HasSuffix(r.URL.Path, "/workerpools/mailers/status")
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+c.ns+"/") && !isExpected {
			writes.Store(new(r.Method + " " + r.URL.Path))
		}
	}))
	defer c.observeRequest.Store(nil)
	c.waitForReadings(5 * 2)
	if what := writes.Load(); what != nil {
		t.Errorf("unexpected write: %s", *what)
	}
}

func (c *poolTestEnv) restoresItsRevision(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: c.getPool("mailers").Status.CurrentRevision}}
	right := func() bool {
		return d.Spec.Template.Spec.Containers[0].Image == "worker:1" && d.Labels[workerpool.LabelWorkerPool] == "mailers" && d.Labels[workerpool.LabelRevision] != ""
	}
	for _, edit := range []string{
		`{"spec":{"template":{"spec":{"containers":[{"name":"worker","image":"worker:changed"}]}}}}`,
		`{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"yardmaster.dev/revision":null}}}`,
	} {
		mustPatch(t, d, client.RawPatch(types.StrategicMergePatchType, []byte(edit)))
		c.waitForObject("the revision to be restored after "+edit, d, right)
		c.waitForPool("mailers", "back at two workers", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 && wp.Status.Replicas == 2 })
	}
	require.True(t, *d.Spec.Replicas == 2, "it has %d replicas", *d.Spec.Replicas)
	if got := c.getPool("mailers").Status; got.CurrentRevision != d.Name || len(got.Revisions) != 1 {
		t.Errorf("the revisions are %+v", got.Revisions)
	}
}

func TestPoolDoesNotChangeAnObjectOfAnotherOwner(t *testing.T) {
	t.Parallel()
	c := newPoolTestEnv(t)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "mailers-workers"}, Data: map[string]string{"a": "b"}}
	mustCreate(t, mine)
	c.createPool("mailers", "replicas: 1")
	is := c.waitForCondition("mailers", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameTaken)
	if want := "ConfigMap mailers-workers already exists and does not belong to this WorkerPool"; !strings.Contains(is.Message, want) {
		t.Errorf("the message is %q, want %q", is.Message, want)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil || len(mine.Data) != 1 {
		t.Errorf("the ConfigMap was changed: %v, %v", err, mine.Data)
	}
}
