package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	workerpoolcontroller "github.com/yardmaster/yardmaster/internal/kinds/workerpool/controller"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// poolTestEnv runs the controller of WorkerPools. The Pods of its workers are simulated, so that no worker answers it.
type poolTestEnv struct {
	*queueEnv

	// observeRequest is called for each of the controller's requests; nil if the test observes none.
	observeRequest atomic.Pointer[func(*http.Request)]
	// readings is the number of times that the operator requested the address of a worker.
	readings atomic.Int64
}

// newPoolTestEnv creates a namespace and a queue, and runs the controller of WorkerPools.
func newPoolTestEnv(t *testing.T) *poolTestEnv {
	t.Helper()
	c := &poolTestEnv{queueEnv: newQueueEnv(t)}
	c.createQueue("mail", "lease: 5s")
	c.waitUntilReady("mail")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { stop(); group.Wait() })
	c.startController(ctx, &group)
	t.Cleanup(func() { cluster.RemoveFinalizers(t, c.ns, "WorkerPool") })
	return c
}

// localDialer connects to the brokers of tests, which are on this host.
var localDialer = bounded.NewDialer(bounded.Options{AllowLocal: true})

// startController runs the controller only for the test's namespace.
func (c *poolTestEnv) startController(ctx context.Context, group *sync.WaitGroup) {
	c.t.Helper()
	operators := rest.CopyConfig(config)
	operators.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if observe := c.observeRequest.Load(); observe != nil {
				(*observe)(request)
			}
			return next.RoundTrip(request)
		})
	})
	mgr, err := ctrl.NewManager(operators, ctrl.Options{
		Scheme:     cluster.Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{c.ns: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(c.t, err)
	keeper := brokerconn.NewManager(mgr.GetAPIReader(), brokerconn.Options{Dialer: localDialer})
	require.NoError(c.t, mgr.Add(keeper))
	sources := brokerconn.NewSourceReader(mgr.GetAPIReader(), brokerconn.Options{Dialer: localDialer})
	require.NoError(c.t, mgr.Add(sources))
	adminSecret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "worker-admin"}}
	require.NoError(c.t, client.IgnoreAlreadyExists(cluster.Create(context.Background(), adminSecret)))
	o := workerpoolcontroller.Options{
		Concurrency: 4, Image: "yardmaster:test", Address: c.workerAddress, Sources: sources,
		AdminSecret: client.ObjectKeyFromObject(adminSecret), OperatorNamespace: "yardmaster-system",
	}
	require.NoError(c.t, workerpoolcontroller.New(mgr, keeper, o).SetupWithManager(mgr))
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			c.t.Error(err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// workerAddress returns an address on which nothing listens.
func (c *poolTestEnv) workerAddress(*corev1.Pod) string {
	c.readings.Add(1)
	return "127.0.0.1:1"
}

// waitForReadings waits until the operator has read workers as often as this: each reconciliation reads each worker.
func (c *poolTestEnv) waitForReadings(number int64) {
	c.t.Helper()
	before := c.readings.Load()
	c.waitFor(fmt.Sprintf("%d readings of workers", number), func() bool { return c.readings.Load() >= before+number })
}

// waitFor waits until the condition is true. Its failure shows the status of all WorkerPools.
func (c *poolTestEnv) waitFor(what string, holds func() bool) {
	c.t.Helper()
	if err := poll.UntilNil(c.t.Context(), func() error {
		if holds() {
			return nil
		}
		statuses, list := "not yet:", v1alpha1.WorkerPoolList{}
		err := cluster.List(c.t.Context(), &list, client.InNamespace(c.ns))
		for i := range list.Items {
			statuses += fmt.Sprintf("\n%s: %+v", list.Items[i].Name, list.Items[i].Status)
		}
		return errors.Join(errors.New(statuses), err)
	}); err != nil {
		c.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// createPool creates a WorkerPool for the queue mail, with more fields in its spec. Only in mode Signal, workers need not answer.
func (c *poolTestEnv) createPool(name, spec string) {
	c.t.Helper()
	const workers = "{image: 'worker:1', concurrency: 2, queues: [{name: mail}], drain: {mode: Signal}, "
	mustCreate(c.t, newManifest(c.t, "WorkerPool", c.ns, name, workers+spec+"}"))
}

func (c *poolTestEnv) getPool(name string) *v1alpha1.WorkerPool {
	c.t.Helper()
	wp := &v1alpha1.WorkerPool{}
	mustGet(c.t, client.ObjectKey{Namespace: c.ns, Name: name}, wp)
	return wp
}

func (c *poolTestEnv) waitForPool(name, what string, holds func(wp *v1alpha1.WorkerPool) bool) {
	c.t.Helper()
	c.waitFor(name+" to be "+what, func() bool { return holds(c.getPool(name)) })
}

func (c *poolTestEnv) waitForCondition(name, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	c.t.Helper()
	var found *metav1.Condition
	c.waitForPool(name, kind+"="+string(status)+" "+reason, func(wp *v1alpha1.WorkerPool) bool {
		found = meta.FindStatusCondition(wp.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason
	})
	return found
}

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
