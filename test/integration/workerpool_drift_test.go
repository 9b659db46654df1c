package integration

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pool"
)

// sharedObject is one of the objects that a pool is made of.
type sharedObject struct {
	object client.Object
	// externalPatch is a manual change, and isRestored reports whether it was undone.
	externalPatch string
	isRestored    func() bool
}

// sharedObjectsOf of the pool postmen, which all revisions share.
func sharedObjectsOf(c *poolTestEnv) map[string]*sharedObject {
	named := metav1.ObjectMeta{Namespace: c.ns, Name: "postmen-workers"}
	config, service := &corev1.ConfigMap{ObjectMeta: named}, &corev1.Service{ObjectMeta: named}
	account, budget := &corev1.ServiceAccount{ObjectMeta: named}, &policyv1.PodDisruptionBudget{ObjectMeta: named}
	selects := func(labels map[string]string) bool {
		return len(labels) == 1 && labels[pool.LabelWorkerPool] == "postmen"
	}
	return map[string]*sharedObject{
		"ConfigMap": {config, `{"data":{"concurrency":"99","queues":null}}`, func() bool {
			return config.Data["concurrency"] == "2" && config.Data["queues"] != ""
		}},
		"Service": {service, `{"spec":{"selector":{"yardmaster.dev/workerpool":"others"}}}`, func() bool { return selects(service.Spec.Selector) }},
		"ServiceAccount": {account, `{"automountServiceAccountToken":true}`, func() bool {
			return account.AutomountServiceAccountToken != nil && !*account.AutomountServiceAccountToken
		}},
		"PodDisruptionBudget": {budget, `{"spec":{"maxUnavailable":"100%"}}`, func() bool { return *budget.Spec.MaxUnavailable == intstr.FromInt32(1) }},
	}
}

// newPoolWithTwoWorkers has a pool of two workers at rest.
func newPoolWithTwoWorkers(t *testing.T) *poolTestEnv {
	t.Helper()
	c := newPoolTestEnv(t, 10*time.Millisecond)
	c.createPool("postmen", "autoscaling: {minReplicas: 2, maxReplicas: 2}")
	c.waitForPool("postmen", "rolled out", func(wp *v1alpha1.WorkerPool) bool {
		return wp.Status.Ready == 2 && wp.Status.CurrentRevision != "" && wp.Status.CurrentRevision == wp.Status.UpdatedRevision
	})
	return c
}

func (c *poolTestEnv) patchObject(object client.Object, patch string) {
	c.t.Helper()
	if err := cluster.Patch(c.t.Context(), object, client.RawPatch(mergePatch, []byte(patch))); err != nil {
		c.t.Fatal(err)
	}
}

// waitForObject waits until the object is there and holds.
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

func TestSharedObjectsAreRestoredAfterExternalChanges(t *testing.T) {
	c := newPoolWithTwoWorkers(t)
	for kind, p := range sharedObjectsOf(c) {
		t.Run(kind, func(t *testing.T) {
			c.waitForObject("the "+kind+" to be made", p.object, p.isRestored)
			c.patchObject(p.object, p.externalPatch)
			began := time.Now()
			c.waitForObject("the "+kind+" to be put right", p.object, p.isRestored)
			assertWithin(t, "the "+kind+" is put right", 5*time.Second, began)

			old := p.object.GetUID()
			if err := cluster.Delete(t.Context(), p.object); err != nil {
				t.Fatal(err)
			}
			c.waitForObject("the "+kind+" to be made again", p.object, func() bool { return p.object.GetUID() != old && p.isRestored() })
			if !metav1.IsControlledBy(p.object, c.getPool("postmen")) {
				t.Error("it is not the pool's")
			}
		})
	}
}

func TestRevisionIsRestoredAfterExternalChanges(t *testing.T) {
	c := newPoolWithTwoWorkers(t)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: c.getPool("postmen").Status.CurrentRevision}}
	right := func() bool {
		return d.Spec.Template.Spec.Containers[0].Image == "worker:1" && d.Labels[pool.LabelWorkerPool] == "postmen" && d.Labels[pool.LabelRevision] != ""
	}
	c.waitForObject("the revision to be made", d, right)
	for what, edit := range map[string]string{
		"another image":     `{"spec":{"template":{"spec":{"containers":[{"name":"worker","image":"worker:hand"}]}}}}`,
		"no label of ours":  `{"metadata":{"labels":null}}`,
		"no revision by it": `{"metadata":{"labels":{"yardmaster.dev/revision":null}}}`,
	} {
		t.Run(what, func(t *testing.T) {
			if err := cluster.Patch(t.Context(), d, client.RawPatch("application/strategic-merge-patch+json", []byte(edit))); err != nil {
				t.Fatal(err)
			}
			c.waitForObject("the revision to be put right", d, right)
			c.waitForPool("postmen", "at rest", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 2 && wp.Status.Replicas == 2 })
		})
	}
	if *d.Spec.Replicas != 2 {
		t.Errorf("it has %d replicas", *d.Spec.Replicas)
	}
	if got := c.getPool("postmen").Status; got.CurrentRevision != d.Name || len(got.Revisions) != 1 {
		t.Errorf("the revisions are %+v", got.Revisions)
	}
}

func TestSettledPoolWritesOnlyItsStatus(t *testing.T) {
	c := newPoolWithTwoWorkers(t)
	for kind, p := range sharedObjectsOf(c) {
		c.waitForObject("the "+kind+" to be made", p.object, p.isRestored)
	}
	var writes atomic.Pointer[string]
	faults.set(t, c.ns, func(r *http.Request) fault {
		if isWrite(r) && !strings.Contains(r.URL.Path, "/queues/") && !strings.HasSuffix(r.URL.Path, "/workerpools/postmen/status") {
			writes.Store(new(r.Method + " " + r.URL.Path))
		}
		return delivered
	})
	c.mu.Lock()
	begun := c.addressLookups
	c.mu.Unlock()
	c.waitFor("five looks", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.addressLookups >= begun+5*2
	})
	if what := writes.Load(); what != nil {
		t.Errorf("it has written: %s", *what)
	}
}

// podMonitorCRD are what the Prometheus operator would install.
const podMonitorCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor, listKind: PodMonitorList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

func TestPodMonitorIsCreatedOnceTheClusterHasTheKind(t *testing.T) {
	c := newPoolWithTwoWorkers(t)
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(podMonitorCRD), &crd.Object); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		if err := client.IgnoreNotFound(cluster.Delete(background, crd)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(remove)
	if err := cluster.Create(t.Context(), crd.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(pool.PodMonitorKind)
	monitor.SetNamespace(c.ns)
	monitor.SetName("postmen-workers")
	right := func() bool {
		labels, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		return err == nil && labels[pool.LabelWorkerPool] == "postmen"
	}
	c.waitFor("a PodMonitor to be made", func() bool {
		return cluster.Get(t.Context(), client.ObjectKeyFromObject(monitor), monitor) == nil && right()
	})
	c.patchObject(monitor, `{"spec":{"selector":{"matchLabels":{"yardmaster.dev/workerpool":"others"}}}}`)
	c.waitForObject("the PodMonitor to be put right", monitor, right)

	remove()
	c.waitFor("the kind to be gone", func() bool {
		return apierrors.IsNotFound(cluster.Get(t.Context(), client.ObjectKeyFromObject(monitor), monitor))
	})
	c.patchPool("postmen", `{"spec":{"autoscaling":{"minReplicas":3,"maxReplicas":3}}}`)
	c.waitForPool("postmen", "three without it", func(wp *v1alpha1.WorkerPool) bool { return wp.Status.Ready == 3 })
}
