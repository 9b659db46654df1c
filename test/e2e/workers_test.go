//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// plainImage has a program that knows nothing of queues, and the operator's.
const plainImage = "plain-worker:v1"

// queue makes another queue.
func (o *office) queue(name string, change func(q *v1alpha1.Queue)) {
	o.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.ns}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "broker"
	q.Spec.Lease = seconds(15)
	if change != nil {
		change(q)
	}
	must(o.t, cluster.Create(o.t.Context(), q))
	o.untilReady(name)
}

// fixed has so many workers, and no autoscaling.
func fixed(pool *v1alpha1.WorkerPool, replicas, concurrency int32) {
	pool.Spec.Autoscaling, pool.Spec.Replicas, pool.Spec.Concurrency = nil, &replicas, concurrency
}

// plain has the workers run the program that knows nothing of queues, with the ledger.
func (o *office) plain(pool *v1alpha1.WorkerPool, command ...string) {
	pool.Name, pool.Spec.Version = "clerks", "1"
	pod := o.podSpec("/plain")
	worker := &pod.Containers[0]
	worker.Image, worker.Command = plainImage, command
	revision := &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + v1alpha1.Prefix + "revision']"}
	worker.Env = append(worker.Env, corev1.EnvVar{Name: "VERSION", ValueFrom: &corev1.EnvVarSource{FieldRef: revision}})
	pool.Spec.Image, pool.Spec.Env = "", nil
	pool.Spec.Template = &corev1.PodTemplateSpec{Spec: pod}
}

// change changes the pool by a JSON merge patch.
func (o *office) change(pool, patch string) {
	o.t.Helper()
	object := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Name: pool, Namespace: o.ns}}
	must(o.t, cluster.Patch(o.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// resize asks for another number of workers, and waits until there are exactly these.
func (o *office) resize(replicas int) {
	o.t.Helper()
	o.change("clerks", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	o.untilWorkers(replicas)
}

// untilWorkers waits until there are so many workers, all are ready, and none goes.
func (o *office) untilWorkers(replicas int) {
	o.t.Helper()
	o.until(fmt.Sprintf("%d workers", replicas), patience, func() bool {
		s := &o.pool().Status
		return int(s.Replicas) == replicas && int(s.Ready) == replicas && len(o.workers()) == replicas
	})
}

// untilRolledOut waits until the spec's revision serves, and no other.
func (o *office) untilRolledOut() {
	o.t.Helper()
	o.until("the rollout", 2*patience, func() bool {
		pool := o.pool()
		c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionProgressing)
		return c != nil && c.Reason == v1alpha1.ReasonRolledOut && c.ObservedGeneration == pool.Generation
	})
}

func seconds(n int) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(n) * time.Second}}
}

func sidecarWorkers(t *testing.T) {
	o := open(t, behindHTTP)
	o.queue("uploads", nil)
	o.queue("retouched", nil)
	o.hireAs("workerpool/sidecar.yaml", func(pool *v1alpha1.WorkerPool) { o.plain(pool, "/plain", "serve") })
	o.untilWorkers(3)
	o.dispatch(batch{queue: "uploads", run: "job", jobs: 1500, rate: 30, takes: 50 * time.Millisecond})
	o.dispatch(batch{queue: "uploads", run: "later", jobs: 20, rate: 5, takes: 10 * time.Millisecond})
	o.dispatch(batch{queue: "retouched", run: "bad", jobs: 10, rate: 5, takes: 10 * time.Millisecond})

	o.resize(1)
	o.resize(3)
	o.change("clerks", `{"spec":{"version":"2"}}`)
	o.untilRolledOut()
	o.untilDone()
	o.wantOnce(2, "job", "later")
	o.wantDead("retouched", 10) // which were answered 400
}

func commandWorkers(t *testing.T) {
	o := open(t, asCommands)
	o.hire(func(pool *v1alpha1.WorkerPool) {
		o.plain(pool, "/yardmaster", "worker", "--exec", "--", "/plain", "once")
		fixed(pool, 3, 2)
		pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal, Timeout: seconds(30), TerminationGrace: seconds(5)}
	})
	o.untilWorkers(3)
	o.dispatch(batch{queue: "orders", run: "job", jobs: 60, rate: 10, takes: 2 * time.Second})
	o.dispatch(batch{queue: "orders", run: "later", jobs: 5, rate: 5, takes: 10 * time.Millisecond})
	o.dispatch(batch{queue: "orders", run: "bad", jobs: 5, rate: 5, takes: 10 * time.Millisecond})
	o.untilBusy(6)
	o.resize(1)
	o.kubectl("delete", "pod", o.workers()[0].Name, "--wait=false")
	o.resize(3)
	o.dispatch(batch{queue: "orders", run: "rolled", jobs: 60, rate: 20, takes: 2 * time.Second})
	o.change("clerks", `{"spec":{"version":"2"}}`)
	o.untilRolledOut()
	o.untilDone()
	o.wantOnce(1, "job", "later", "rolled")
	o.wantDead("orders", 5) // which ended with 65
}

func (o *office) wantDead(queue string, letters int64) {
	o.t.Helper()
	var q v1alpha1.Queue
	must(o.t, cluster.Get(o.t.Context(), o.key(queue), &q))
	if dead := q.Status.Dead; dead == nil || *dead != letters {
		o.t.Errorf("Queue %s: %v, want %d dead letters", queue, q.Status, letters)
	}
}

// untilBusy waits until the broker knows of so many messages in flight.
func (o *office) untilBusy(messages int64) {
	o.t.Helper()
	o.until("the workers to be busy", patience, func() bool {
		var queue v1alpha1.Queue
		must(o.t, cluster.Get(o.t.Context(), o.key("orders"), &queue))
		return queue.Status.InFlight != nil && *queue.Status.InFlight >= messages
	})
}

func canary(t *testing.T) {
	o := open(t, canaries)
	o.queue("mail", func(q *v1alpha1.Queue) {
		// A release that fails at once meets a message again and again.
		q.Spec.Retry = &v1alpha1.Retry{MaxAttempts: new(int32(50)), InitialDelay: seconds(1), MaxDelay: seconds(1)}
	})
	o.hireAs("workerpool/canary.yaml", func(pool *v1alpha1.WorkerPool) {
		o.plain(pool, "/plain", "serve")
		fixed(pool, 3, 4)
		pool.Spec.Queues = []v1alpha1.PoolQueue{{Name: "mail"}}
		pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSidecar, Timeout: seconds(30)}
		pool.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 34}, {Percent: 67, Pause: seconds(3)}}
		pool.Spec.Rollout.Analysis.MinSamples = 10
	})
	o.untilWorkers(3)
	o.dispatch(batch{queue: "mail", run: "job", jobs: 2400, rate: 40, takes: 20 * time.Millisecond})
	good := o.pool().Status.CurrentRevision

	o.change("clerks", `{"spec":{"version":"bad","env":[{"name":"BROKEN","value":"yes"}]}}`)
	o.until("the bad revision to be given up", 2*patience, func() bool {
		c := meta.FindStatusCondition(o.pool().Status.Conditions, v1alpha1.ConditionRolloutPaused)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAnalysisFailed
	})
	o.until("the good revision to have all workers again", patience, func() bool {
		return o.of(good) == 3 && len(o.workers()) == 3
	})
	if pool := o.pool(); pool.Status.CurrentRevision != good {
		t.Errorf("%s serves, not %s", pool.Status.CurrentRevision, good)
	}

	o.change("clerks", `{"spec":{"version":"2","env":null}}`)
	for step := 1; step <= 2; step++ {
		told := fmt.Sprintf("step %d of 2", step)
		o.until(told, 2*patience, func() bool {
			c := meta.FindStatusCondition(o.pool().Status.Conditions, v1alpha1.ConditionProgressing)
			return strings.Contains(c.Message, told)
		})
		if pool := o.pool(); int(o.of(pool.Status.UpdatedRevision)) > step {
			t.Errorf("%d new workers in %s", o.of(pool.Status.UpdatedRevision), told)
		}
	}
	o.untilRolledOut()
	o.untilDone()
	o.wantOnce(2, "job")
}

// of is how many workers of a revision there are that are ready.
func (o *office) of(revision string) int32 {
	o.t.Helper()
	for _, r := range o.pool().Status.Revisions {
		if r.Name == revision {
			return r.Ready
		}
	}
	return 0
}

func missingWorkerImage(t *testing.T) {
	o := open(t, pulled)
	o.hire(func(pool *v1alpha1.WorkerPool) { fixed(pool, 2, 2) })
	o.untilWorkers(2)
	before := o.workers()
	o.change("clerks", `{"spec":{"version":"2","image":"example-worker:none"}}`)
	o.until("the rollout to be paused", patience, func() bool {
		c := meta.FindStatusCondition(o.pool().Status.Conditions, v1alpha1.ConditionRolloutPaused)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonImagePull
	})
	o.dispatch(batch{queue: "orders", run: "job", jobs: 60, rate: 20, takes: 50 * time.Millisecond})
	o.untilDone()
	o.wantOnce(1, "job")
	for i := range before {
		if !exists(t, &before[i]) || !before[i].DeletionTimestamp.IsZero() {
			t.Errorf("%s was taken away before there was another", before[i].Name)
		}
	}
	o.change("clerks", `{"spec":{"version":"1","image":"example-worker:v1"}}`)
	o.untilRolledOut()
	o.untilWorkers(2)
}

func statefulWorkers(t *testing.T) {
	o := open(t, numbered)
	o.hire(func(pool *v1alpha1.WorkerPool) {
		fixed(pool, 3, 2)
		pool.Spec.Workload = v1alpha1.WorkloadStatefulSet
	})
	o.untilWorkers(3)
	o.wantNumbers(0, 1, 2)
	o.dispatch(batch{queue: "orders", run: "job", jobs: 450, rate: 10, takes: 300 * time.Millisecond})
	o.resize(1)
	o.wantNumbers(0)
	o.resize(3)
	o.change("clerks", `{"spec":{"version":"2"}}`)
	o.untilRolledOut()
	o.untilWorkers(3)
	o.wantNumbers(0, 1, 2)
	o.untilDone()
	o.wantOnce(2, "job")
}

// wantNumbers checks which numbers the workers of a StatefulSet have.
func (o *office) wantNumbers(want ...int) {
	o.t.Helper()
	var got, wanted []string
	for _, pod := range o.workers() {
		got = append(got, pod.Labels[appsv1.PodIndexLabel])
	}
	for _, number := range want {
		wanted = append(wanted, fmt.Sprint(number))
	}
	slices.Sort(got)
	if !slices.Equal(got, wanted) {
		o.t.Errorf("the workers have the numbers %v, want %v", got, wanted)
	}
}

func preemption(t *testing.T) {
	const total = 4
	o := open(t, preempted)
	o.queue("urgent", nil)
	o.queue("nightly", nil)
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: o.ns}}
	policy.Spec.Limits = &v1alpha1.PolicyLimits{MaxReplicasTotal: new(int32(total))}
	must(t, cluster.Create(t.Context(), policy))
	o.hire(func(pool *v1alpha1.WorkerPool) {
		pool.Name, pool.Spec.Queues, pool.Spec.Concurrency = "nightly", []v1alpha1.PoolQueue{{Name: "nightly"}}, 2
		pool.Spec.Autoscaling.MinReplicas, pool.Spec.Autoscaling.MaxReplicas = 1, total
	})
	o.dispatch(batch{queue: "nightly", run: "slow", jobs: 150, rate: 100, takes: time.Second})
	o.until("all workers to be nightly", patience, func() bool { return o.staff("nightly").Ready == total })

	o.hire(func(pool *v1alpha1.WorkerPool) {
		pool.Name, pool.Spec.Queues, pool.Spec.Concurrency = "urgent", []v1alpha1.PoolQueue{{Name: "urgent"}}, 2
		pool.Spec.Autoscaling.MaxReplicas = total
		pool.Spec.Priority, pool.Spec.Preemption = 100, v1alpha1.PreemptDrainLower
	})
	o.dispatch(batch{queue: "urgent", run: "fast", jobs: 120, rate: 100, takes: 500 * time.Millisecond})
	o.until("the urgent to have what is above the nightly minimum", patience, func() bool {
		if there := o.alive("urgent") + o.alive("nightly"); there > total {
			t.Fatalf("%d workers, and the budget is %d", there, total)
		}
		return o.staff("urgent").Ready == total-1 && o.alive("nightly") == 1
	})
	o.untilDone()
	o.wantOnce(1, "slow", "fast")
}

func (o *office) staff(pool string) *v1alpha1.WorkerPoolStatus {
	o.t.Helper()
	found := &v1alpha1.WorkerPool{}
	must(o.t, cluster.Get(o.t.Context(), o.key(pool), found))
	return &found.Status
}

// alive is how many Pods of a pool are not on their way out.
func (o *office) alive(pool string) int {
	o.t.Helper()
	var pods corev1.PodList
	must(o.t, cluster.List(o.t.Context(), &pods, client.InNamespace(o.ns)))
	number := 0
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, pool+"-") && pods.Items[i].DeletionTimestamp.IsZero() {
			number++
		}
	}
	return number
}

func eviction(t *testing.T) {
	o := open(t, evicted)
	o.hire(func(pool *v1alpha1.WorkerPool) { fixed(pool, 2, 4) })
	o.untilWorkers(2)
	o.dispatch(batch{queue: "orders", run: "job", jobs: 24, rate: 24, takes: 3 * time.Second})
	o.untilBusy(8)
	workers := o.workers()
	// Its budget is counted by a controller that has to have seen the Pods.
	o.until("a worker to be evicted", patience, func() bool {
		err := o.evict(&workers[0])
		if err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := o.evict(&workers[1]); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second is evicted beside the first: %v", err)
	}
	o.until("another in its place", patience, func() bool {
		return !exists(t, &workers[0]) && o.pool().Status.Ready == 2
	})
	o.untilDone()
	o.wantOnce(1, "job")
}

func (o *office) evict(pod *corev1.Pod) error {
	return clientset.PolicyV1().Evictions(o.ns).Evict(o.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: o.ns},
	})
}

func rotation(t *testing.T) {
	o := open(t, loggedIn)
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: o.ns}}
	login.Data = map[string][]byte{"username": []byte("clerk"), "password": []byte("first")}
	must(t, cluster.Create(t.Context(), login))
	o.kubectl("patch", "queue", "orders", "--type=merge", "-p", `{"spec":{"broker":{"credentialsSecretRef":{"name":"login"}}}}`)
	o.demand("clerk:first@", "--user=clerk", "--pass=first")
	o.hire(func(pool *v1alpha1.WorkerPool) { fixed(pool, 2, 2) })
	o.untilWorkers(2)
	operators, err := operatorPods(t.Context())
	must(t, err)
	workers := o.workers()
	o.dispatch(batch{queue: "orders", run: "first", jobs: 20, rate: 20, takes: 50 * time.Millisecond})
	o.untilDone()

	login.Data["password"] = []byte("second")
	must(t, cluster.Update(t.Context(), login))
	o.demand("clerk:second@", "--user=clerk", "--pass=second")
	o.dispatch(batch{queue: "orders", run: "second", jobs: 20, rate: 20, takes: 50 * time.Millisecond})
	o.untilDone()
	wantUndisturbed(t, workers)

	// Another way to log in is another file to read, and takes other workers.
	login.Data = map[string][]byte{"token": []byte("third")}
	must(t, cluster.Update(t.Context(), login))
	o.demand("third@", "--auth=third")
	o.dispatch(batch{queue: "orders", run: "third", jobs: 20, rate: 20, takes: 50 * time.Millisecond})
	o.untilDone()
	o.untilRolledOut()
	wantUndisturbed(t, operators)
	o.wantOnce(1, "first", "second", "third")
}

// demand has the broker let in nobody but who logs in so.
func (o *office) demand(user string, args ...string) {
	o.t.Helper()
	args = append([]string{"--jetstream", "--store_dir=/data", "--port=4222", "--http_port=8222"}, args...)
	raw, err := json.Marshal(args)
	must(o.t, err)
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"nats","args":%s}]}}}}`, raw)
	o.kubectl("patch", "statefulset", "nats", "-p", patch)
	o.kubectl("rollout", "status", "statefulset/nats", "--timeout=90s")
	o.user = user
}

// wantUndisturbed checks that the Pods are there and were not started anew.
func wantUndisturbed(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		now := pods[i].DeepCopy()
		if !exists(t, now) || now.UID != pods[i].UID || !now.DeletionTimestamp.IsZero() {
			t.Errorf("%s is there no more", now.Name)
			continue
		}
		for j := range now.Status.ContainerStatuses {
			if before, after := pods[i].Status.ContainerStatuses[j].RestartCount, now.Status.ContainerStatuses[j].RestartCount; before != after {
				t.Errorf("%s was started anew %d times", now.Name, after-before)
			}
		}
	}
}

func drainGoesOn(t *testing.T) {
	o := open(t, interrupted)
	o.hire(func(pool *v1alpha1.WorkerPool) { fixed(pool, 3, 2) })
	o.untilWorkers(3)
	o.dispatch(batch{queue: "orders", run: "job", jobs: 8, rate: 100, takes: 12 * time.Second})
	o.untilBusy(6)
	o.change("clerks", `{"spec":{"replicas":1}}`)
	o.until("two workers to be drained", patience, func() bool { return o.draining() == 2 })
	forceDelete(t, leader(t))
	must(t, waitForOperator(t.Context()))
	if o.draining() != 2 {
		t.Error("the drain was over before the operator was back")
	}
	o.untilWorkers(1)
	o.untilDone()
	o.wantOnce(1, "job")
}

// draining is how many workers are marked to finish.
func (o *office) draining() int {
	o.t.Helper()
	number := 0
	for _, pod := range o.workers() {
		if pod.Annotations[v1alpha1.Prefix+"draining"] != "" {
			number++
		}
	}
	return number
}
