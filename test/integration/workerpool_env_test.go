package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
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
	require.NoError(c.t, client.IgnoreAlreadyExists(cluster.Create(background, adminSecret)))
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
