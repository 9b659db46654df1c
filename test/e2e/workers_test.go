//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// plainImage contains the plain worker and the operator's binary.
const plainImage = "plain-worker:v1"

// createQueue creates another Queue.
func (env *queueEnv) createQueue(name string, change func(q *v1alpha1.Queue)) {
	env.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: env.namespace}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "broker"
	q.Spec.Name, q.Spec.Lease = name, durationOfSeconds(15)
	if change != nil {
		change(q)
	}
	require.NoError(env.t, cluster.Create(env.t.Context(), q))
	env.waitUntilQueueReady(name)
}

// setFixedReplicas disables autoscaling and sets the number of workers.
func setFixedReplicas(pool *v1alpha1.WorkerPool, replicas, concurrency int32) {
	pool.Spec.Autoscaling, pool.Spec.Replicas, pool.Spec.Concurrency = nil, &replicas, concurrency
}

// usePlainWorker makes the workers run the plain worker with the ledger.
func (env *queueEnv) usePlainWorker(pool *v1alpha1.WorkerPool, command ...string) {
	pool.Name, pool.Spec.Version = "orders", "1"
	pod := env.newPodSpec("/plain")
	worker := &pod.Containers[0]
	worker.Image, worker.Command = plainImage, command
	revision := &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + v1alpha1.Prefix + "revision']"}
	worker.Env = append(worker.Env, corev1.EnvVar{Name: "VERSION", ValueFrom: &corev1.EnvVarSource{FieldRef: revision}})
	pool.Spec.Image = ""
	pool.Spec.Template = &corev1.PodTemplateSpec{Spec: pod}
}

// patchPool applies a JSON merge patch to the pool orders.
func (env *queueEnv) patchPool(patch string) {
	env.t.Helper()
	pool := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: env.namespace}}
	require.NoError(env.t, strict().Patch(env.t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// strict returns a client for which an unknown field in a patch is an error.
func strict() client.Client { return client.WithFieldValidation(cluster, metav1.FieldValidationStrict) }

// patchQueue applies a JSON merge patch to the Queue orders.
func (env *queueEnv) patchQueue(patch string) {
	env.t.Helper()
	queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: env.namespace}}
	require.NoError(env.t, strict().Patch(env.t.Context(), queue, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// resizePool changes the number of workers, and waits until exactly that number runs.
func (env *queueEnv) resizePool(replicas int) {
	env.t.Helper()
	env.patchPool(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	env.waitUntilWorkers(replicas)
}

// waitUntilWorkers waits until exactly the given number of workers exists and all are ready.
func (env *queueEnv) waitUntilWorkers(replicas int) {
	env.t.Helper()
	poll.Until(env.t, fmt.Sprintf("%d workers to be ready", replicas), func() bool {
		s := &env.getPool().Status
		return int(s.Replicas) == replicas && int(s.Ready) == replicas && len(env.workerPods()) == replicas
	})
}

// waitUntilRolledOut waits until only the revision of the current spec serves.
func (env *queueEnv) waitUntilRolledOut() {
	env.t.Helper()
	poll.Until(env.t, "the rollout to be complete", func() bool {
		pool := env.getPool()
		c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionProgressing)
		return c != nil && c.Reason == v1alpha1.ReasonRolledOut && c.ObservedGeneration == pool.Generation
	})
}

func durationOfSeconds(n int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(n) * time.Second}}
}

func testSidecarWorkers(t *testing.T) {
	env := newQueueEnv(t, sidecarNamespace)
	env.createQueue("uploads", nil)
	env.createQueue("retouched", nil)
	env.createPoolFromExample("workerpool/sidecar.yaml", func(pool *v1alpha1.WorkerPool) { env.usePlainWorker(pool, "/plain", "serve") })
	env.waitUntilWorkers(3)
	env.sendBatch(jobBatch{queue: "uploads", run: "job", endless: true, rate: 10, takes: 50 * time.Millisecond})
	env.sendBatch(jobBatch{queue: "uploads", run: "later", jobs: 20, rate: 5, takes: 10 * time.Millisecond})
	env.sendBatch(jobBatch{queue: "retouched", run: "bad", jobs: 10, rate: 5, takes: 10 * time.Millisecond})

	env.resizePool(1)
	env.resizePool(3)
	env.patchPool(`{"spec":{"version":"2"}}`)
	env.waitUntilRolledOut()
	env.endBatches()
	env.waitUntilAllDone()
	env.wantEachDoneOnce(2, "job", "later")
	env.wantDeadLetters("retouched", 10) // the server responded with 400
	env.wantDeafApplicationsEnd()
}

// endTime is how long a Pod of a drained worker is terminating, four times what is promised.
const endTime = 4 * 15 * time.Second

// wantDeafApplicationsEnd replaces the application by one that ignores SIGTERM: a shell that is the first process of its container, as
// Python and Node.js would be. The grace period of its Pods is six minutes.
func (env *queueEnv) wantDeafApplicationsEnd() {
	env.t.Helper()
	pool := env.getPool()
	before := pool.DeepCopy()
	worker := &pool.Spec.Template.Spec.Containers[0]
	pool.Spec.Version, worker.Image, worker.Env, worker.VolumeMounts = "deaf", busyboxImage, nil, nil
	worker.Command = []string{"sh", "-c", "httpd -p 8080 -h /tmp; while :; do sleep 3600; done"}
	require.NoError(env.t, cluster.Patch(env.t.Context(), pool, client.MergeFrom(before)))
	env.waitUntilRolledOut()
	env.waitUntilWorkers(3)
	env.patchPool(`{"spec":{"replicas":1}}`)
	var since time.Time
	poll.Until(env.t, "the surplus workers to end", func() bool {
		pods := env.workerPods()
		if since.IsZero() && slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }) {
			since = time.Now()
		}
		return len(pods) == 1
	})
	if took := time.Since(since); !since.IsZero() && took > endTime {
		env.t.Errorf("a drained Pod was terminating for %s, want at most %s", took, endTime)
	} else {
		env.t.Logf("drained Pods whose application ignores SIGTERM were terminating for %s", took)
	}
}

func testCommandWorkers(t *testing.T) {
	env := newQueueEnv(t, commandNamespace)
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		env.usePlainWorker(pool, "/yardmaster", "worker", "--exec", "--", "/plain", "once")
		setFixedReplicas(pool, 3, 2)
		pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal, Timeout: durationOfSeconds(30), TerminationGrace: durationOfSeconds(5)}
	})
	env.waitUntilWorkers(3)
	env.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 60, rate: 10, takes: 2 * time.Second})
	env.sendBatch(jobBatch{queue: "orders", run: "later", jobs: 5, rate: 5, takes: 10 * time.Millisecond})
	env.sendBatch(jobBatch{queue: "orders", run: "bad", jobs: 5, rate: 5, takes: 10 * time.Millisecond})
	env.waitUntilInFlight(6)
	env.resizePool(1)
	env.runKubectl("delete", "pod", env.workerPods()[0].Name, "--wait=false")
	env.resizePool(3)
	env.sendBatch(jobBatch{queue: "orders", run: "rolled", jobs: 60, rate: 20, takes: 2 * time.Second})
	env.patchPool(`{"spec":{"version":"2"}}`)
	env.waitUntilRolledOut()
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job", "later", "rolled")
	env.wantDeadLetters("orders", 5) // the command exited with 65
}

func (env *queueEnv) wantDeadLetters(queue string, letters int64) {
	env.t.Helper()
	q := env.getQueue(queue)
	if dead := q.Status.Dead; dead == nil || *dead != letters {
		env.t.Errorf("status of Queue %s: %+v, want %d dead letters", queue, q.Status, letters)
	}
}

// waitUntilInFlight waits until the Queue's status shows at least the given number of messages
// in flight.
func (env *queueEnv) waitUntilInFlight(messages int64) {
	env.t.Helper()
	poll.Until(env.t, "the workers to be busy", func() bool {
		queue := env.getQueue("orders")
		return queue.Status.InFlight != nil && *queue.Status.InFlight >= messages
	})
}

func testEvictionDrainsWorkers(t *testing.T) {
	env := newQueueEnv(t, evictionNamespace)
	env.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 4) })
	env.waitUntilWorkers(2)
	env.sendBatch(jobBatch{queue: "orders", run: "job", jobs: 24, rate: 24, takes: 3 * time.Second})
	env.waitUntilInFlight(8)
	workers := env.workerPods()
	env.evictOnlyOne(&workers[0], &workers[1])
	poll.Until(env.t, "the evicted worker to be replaced", func() bool {
		return !objectExists(t, &workers[0]) && env.getPool().Status.Ready == 2
	})
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job")
}

// evictOnlyOne evicts a Pod once its PodDisruptionBudget allows it, which it does only after its controller has
// observed the Pods. The other Pod cannot be evicted together with it.
func (env *queueEnv) evictOnlyOne(pod, other *corev1.Pod) {
	env.t.Helper()
	poll.Until(env.t, pod.Name+" to be evicted", func() bool {
		err := env.evictPod(pod)
		if err != nil && !apierrors.IsTooManyRequests(err) {
			env.t.Fatal(err)
		}
		return err == nil
	})
	if err := env.evictPod(other); !apierrors.IsTooManyRequests(err) {
		env.t.Errorf("%s could be evicted together with %s: %v", other.Name, pod.Name, err)
	}
}

func (env *queueEnv) evictPod(pod *corev1.Pod) error {
	return clientset.PolicyV1().Evictions(env.namespace).Evict(env.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: env.namespace},
	})
}
