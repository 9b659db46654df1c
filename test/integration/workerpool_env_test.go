package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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
	"github.com/yardmaster/yardmaster/worker"
)

// poolTestEnv runs the workers of pools: for each simulated Pod, a real worker in the process of the
// test, with the configuration of the Pod. Its jobs succeed at once.
type poolTestEnv struct {
	*queueEnv

	mu      sync.Mutex
	workers map[string]*fakeWorker // by Pod
	// observeRequest is called for each of the controller's requests; nil if the test observes none.
	observeRequest atomic.Pointer[func(*http.Request)]
	// addressLookups is the number of times that the operator requested the address of a worker.
	addressLookups int
}

// fakeWorker is one worker.
type fakeWorker struct {
	server *httptest.Server
	stop   context.CancelFunc
}

// newPoolTestEnv creates a namespace and a queue, and runs the controller of WorkerPools and the
// workers of its Pods.
func newPoolTestEnv(t *testing.T) *poolTestEnv {
	t.Helper()
	c := &poolTestEnv{queueEnv: newQueueEnv(t), workers: map[string]*fakeWorker{}}
	c.createQueue("mail", "lease: 5s")
	c.waitUntilReady("mail")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { stop(); group.Wait() })
	c.startController(ctx, &group)
	group.Go(func() { c.runWorkersOfPods(ctx) })
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

// runWorkersOfPods runs a worker for each running Pod of a pool with queues until the Pod is deleted.
func (c *poolTestEnv) runWorkersOfPods(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := cluster.List(ctx, &pods, client.InNamespace(c.ns), client.HasLabels{workerpool.LabelWorkerPool}); err != nil {
			return false, nil //nolint:nilerr // the test is about to end, or the next attempt succeeds
		}
		there := map[string]bool{}
		for i := range pods.Items {
			if p := &pods.Items[i]; configMapOfPod(p) != "" && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() {
				there[p.Name] = true
				c.startWorker(ctx, p)
			}
		}
		c.stopWorkers(there)
		return false, nil
	})
	c.stopWorkers(nil)
}

func (c *poolTestEnv) startWorker(ctx context.Context, pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.workers[pod.Name] != nil {
		return
	}
	shared := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: c.ns, Name: configMapOfPod(pod)}
	err := cluster.Get(ctx, key, shared)
	if ctx.Err() != nil || apierrors.IsNotFound(err) {
		return // the test is over, or the Pod waits for its volumes, as with a kubelet
	}
	if err != nil {
		c.t.Errorf("Pod %s has no configuration: %v", pod.Name, err)
		return
	}
	o := worker.Options{
		Namespace: c.ns, Pod: pod.Name, Revision: pod.Labels[workerpool.LabelRevision], Logger: slog.New(slog.DiscardHandler),
		PreStopSecret: workerpool.PreStopSecretOf(&pod.Spec), AdminKeyFile: filepath.Join(c.t.TempDir(), workerpool.AdminKeyFileName),
	}
	if err := os.WriteFile(o.AdminKeyFile, []byte(shared.Data[workerpool.AdminKeyFileName]), 0o600); err != nil {
		c.t.Error(err)
		return
	}
	if o.Config, err = worker.ParseConfig([]byte(shared.Data["config.yaml"])); err != nil {
		c.t.Errorf("the configuration of Pod %s is invalid: %v", pod.Name, err)
		return
	}
	// The worker has no volumes, so the URL replaces the mounted files.
	o.Config.Broker = worker.BrokerConfig{URL: "nats://" + c.Address()}
	o.Config.AdminAddress = "0"
	w, err := worker.New(o, func(context.Context, *worker.Job) error { return nil })
	if err != nil {
		c.t.Errorf("Pod %s: %v", pod.Name, err)
		return
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.workers[pod.Name] = &fakeWorker{httptest.NewServer(w.AdminHandler()), stop}
	go func() { _ = w.Run(life) }()
}

// configMapOfPod returns the name of the ConfigMap with the configuration of a worker; empty if it consumes no
// queues.
func configMapOfPod(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == workerpool.SidecarContainer+"-config" {
			return volume.ConfigMap.Name
		}
	}
	return ""
}

// stopWorkers stops the workers whose Pods no longer exist.
func (c *poolTestEnv) stopWorkers(there map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, h := range c.workers {
		if there[name] {
			continue
		}
		h.stop()
		h.server.Close()
		delete(c.workers, name)
	}
}

// workerAddress returns the address of a worker's admin API, or one on which nothing listens.
func (c *poolTestEnv) workerAddress(pod *corev1.Pod) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addressLookups++
	if h := c.workers[pod.Name]; h != nil {
		return strings.TrimPrefix(h.server.URL, "http://")
	}
	return "127.0.0.1:1"
}

// waitForReadings waits until the operator has read workers as often as this: each reconciliation reads each worker.
func (c *poolTestEnv) waitForReadings(number int) {
	c.t.Helper()
	lookups := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.addressLookups
	}
	begun := lookups()
	c.waitFor(fmt.Sprintf("%d readings of workers", number), func() bool { return lookups() >= begun+number })
}

// waitFor waits until the condition is true. Its failure shows the status of all WorkerPools.
func (c *poolTestEnv) waitFor(what string, holds func() bool) {
	c.t.Helper()
	if err := poll.UntilNil(c.t.Context(), func() error {
		if holds() {
			return nil
		}
		var list v1alpha1.WorkerPoolList
		err := cluster.List(c.t.Context(), &list, client.InNamespace(c.ns))
		for i := range list.Items {
			err = errors.Join(err, errors.New(describePoolStatus(&list.Items[i])))
		}
		return errors.Join(errors.New("not yet"), err)
	}); err != nil {
		c.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func describePoolStatus(wp *v1alpha1.WorkerPool) string {
	s := &wp.Status
	text := fmt.Sprintf("%s: desired %d, replicas %d, ready %d, draining %d, current %s, updated %s\n", wp.Name, s.Desired, s.Replicas, s.Ready,
		s.Draining, s.CurrentRevision, s.UpdatedRevision)
	for _, c := range s.Conditions {
		text += fmt.Sprintf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	if s.LastDecision != nil {
		text += "  " + s.LastDecision.Message
	}
	return text
}

// createPool creates a WorkerPool for the queue mail, with more fields in its spec.
func (c *poolTestEnv) createPool(name, spec string) {
	c.t.Helper()
	object := newManifest(c.t, "WorkerPool", name, "{image: 'worker:1', concurrency: 2, queues: [{name: mail}], "+spec+"}")
	object.SetNamespace(c.ns)
	mustCreate(c.t, object)
}

// getPool reads a WorkerPool.
func (c *poolTestEnv) getPool(name string) *v1alpha1.WorkerPool {
	c.t.Helper()
	wp := &v1alpha1.WorkerPool{}
	mustGet(c.t, client.ObjectKey{Namespace: c.ns, Name: name}, wp)
	return wp
}

// waitForPool waits until a WorkerPool satisfies the condition.
func (c *poolTestEnv) waitForPool(name, what string, holds func(wp *v1alpha1.WorkerPool) bool) {
	c.t.Helper()
	c.waitFor(name+" to be "+what, func() bool { return holds(c.getPool(name)) })
}

// waitForCondition waits for a condition of a WorkerPool.
func (c *poolTestEnv) waitForCondition(name, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	c.t.Helper()
	var found *metav1.Condition
	c.waitForPool(name, kind+"="+string(status)+" "+reason, func(wp *v1alpha1.WorkerPool) bool {
		found = meta.FindStatusCondition(wp.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason
	})
	return found
}
