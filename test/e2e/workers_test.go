//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// plainImage contains the plain worker and the operator's binary.
const plainImage = "plain-worker:v1"

// queueEnv is a namespace with NATS, the Queue orders and the WorkerPool orders of examples/orders.
type queueEnv struct {
	t                 *testing.T
	namespace         string
	brokerUser        string // the login in the broker's URL, such as "user:password@"
	jobCount, jobRate int
	jobDuration       time.Duration
	sentBatches       []jobBatch
}

func (env *queueEnv) createQueue(name string, change func(q *v1alpha1.Queue)) {
	env.t.Helper()
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: env.namespace}}
	q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	q.Spec.Broker.URLSecretRef.Name = "broker"
	q.Spec.Name, q.Spec.Lease = name, v1alpha1.NewDuration(15*time.Second)
	if change != nil {
		change(q)
	}
	require.NoError(env.t, cluster.Create(env.t.Context(), q))
	env.waitUntilQueueReady(name)
}

func setFixedReplicas(pool *v1alpha1.WorkerPool, replicas, concurrency int32) {
	pool.Spec.Autoscaling, pool.Spec.Replicas, pool.Spec.Concurrency = nil, &replicas, concurrency
}

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

func (env *queueEnv) patchPool(patch string) {
	env.t.Helper()
	env.patchStrictly(&v1alpha1.WorkerPool{}, patch)
}

// patchStrictly patches the object orders. An unknown field is an error.
func (env *queueEnv) patchStrictly(object client.Object, patch string) {
	env.t.Helper()
	object.SetName("orders")
	object.SetNamespace(env.namespace)
	strict := client.WithFieldValidation(cluster, metav1.FieldValidationStrict)
	require.NoError(env.t, strict.Patch(env.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (env *queueEnv) resizePool(replicas int) {
	env.t.Helper()
	env.patchPool(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	env.waitUntilWorkers(replicas)
}

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
		pool.Spec.Drain = &v1alpha1.Drain{Mode: v1alpha1.DrainSignal, Timeout: v1alpha1.NewDuration(30 * time.Second), TerminationGrace: v1alpha1.NewDuration(5 * time.Second)}
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
	dead := q.Status.Dead
	require.True(env.t, dead != nil && *dead == letters, "status of Queue %s: %+v, want %d dead letters", queue, q.Status, letters)
}

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
	poll.Until(env.t, "the evicted worker to be replaced", func() bool { return !objectExists(t, &workers[0]) && env.getPool().Status.Ready == 2 })
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job")
}

// evictOnlyOne evicts a Pod once its PodDisruptionBudget allows it, which it does only after its controller has
// observed the Pods. The other Pod cannot be evicted together with it.
func (env *queueEnv) evictOnlyOne(pod, other *corev1.Pod) {
	poll.Until(env.t, pod.Name+" to be evicted", func() bool {
		err := env.evictPod(pod)
		if err != nil && !apierrors.IsTooManyRequests(err) {
			env.t.Fatal(err)
		}
		return err == nil
	})
	err := env.evictPod(other)
	require.True(env.t, apierrors.IsTooManyRequests(err), "%s could be evicted together with %s: %v", other.Name, pod.Name, err)
}

func (env *queueEnv) evictPod(pod *corev1.Pod) error {
	return clientset.PolicyV1().Evictions(env.namespace).Evict(env.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: env.namespace},
	})
}

// visitorScript prints the status lines of the responses to requests that change a worker.
const visitorScript = `
send() { printf '%%s HTTP/1.0\r\nHost: x\r\n\r\n' "$1" | nc -w "$3" %[1]s "$2" | head -n 1 | tr -d '\r' | cut -d ' ' -f 2; }
{
	for request in 'POST /drain' 'POST /resume' 'GET /prestop' 'GET /stats'; do echo "$request: $(send "$request" 8081 %[2]d)"; done
	echo "GET /metrics: $(send 'GET /metrics' 18081 60)"
} > /dev/termination-log`

// visitWorker returns what a Pod of another namespace gets from a worker, whose admin port has so many seconds to answer.
func visitWorker(t *testing.T, worker *corev1.Pod, seconds int) string {
	t.Helper()
	pod := createScriptPod(t, "visitor-", nil, fmt.Sprintf(visitorScript, worker.Status.PodIP, seconds))
	waitForSuccess(t, pod)
	return strings.TrimSpace(pod.Status.ContainerStatuses[0].State.Terminated.Message)
}

func testAdminAPI(t *testing.T) {
	env := newQueueEnv(t, adminNamespace)
	env.createPool(func(pool *v1alpha1.WorkerPool) { setFixedReplicas(pool, 2, 2) })
	env.waitUntilWorkers(2)
	// Each worker always has jobs: one without would end as soon as the operator drains it, and not answer the kubelet.
	env.sendBatch(jobBatch{queue: "orders", run: "job", endless: true, rate: 1, takes: 6 * time.Second})
	workers := env.workerPods()
	for i := range workers {
		want := "POST /drain: \nPOST /resume: \nGET /prestop: \nGET /stats: \nGET /metrics: 200"
		require.Equal(t, want, visitWorker(t, &workers[i], 3))
	}
	env.patchPool(`{"spec":{"networkPolicy":"None"}}`)
	for i := range workers {
		poll.Until(t, "the admin port to be open", func() bool { return canConnect(t, nil, podAddress(&workers[i], 8081)) })
		want := "POST /drain: 403\nPOST /resume: 403\nGET /prestop: 404\nGET /stats: 200\nGET /metrics: 200"
		require.Equal(t, want, visitWorker(t, &workers[i], 60))
	}
	env.patchPool(`{"spec":{"networkPolicy":null}}`)
	after := env.workerPods()
	for i := range after {
		require.True(t, after[i].Name == workers[i].Name && after[i].Status.ContainerStatuses[0].RestartCount == 0,
			"worker %s was restarted or replaced", workers[i].Name)
	}
	// The operator and the kubelet drain workers.
	env.resizePool(1)
	env.resizePool(2)
	env.waitUntilInFlight(4)
	env.runKubectl("delete", "pod", env.workerPods()[0].Name)
	env.waitUntilWorkers(2)
	env.endBatches()
	env.waitUntilAllDone()
	env.wantEachDoneOnce(1, "job")
	env.wantHooksSucceeded()
}

// wantHooksSucceeded checks that the kubelet could drain each worker that it stopped. The operator can have drained a
// deleted worker before the kubelet learns of the deletion. Then the kubelet restarts it, and nothing answers its hook yet.
func (env *queueEnv) wantHooksSucceeded() {
	var events eventsv1.EventList
	require.NoError(env.t, cluster.List(env.t.Context(), &events, client.InNamespace(env.namespace)))
	restarted := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "Created" && (e.Series != nil || e.DeprecatedCount > 1) {
			restarted[e.Regarding.Name] = true
		}
	}
	for i := range events.Items {
		e := &events.Items[i]
		require.True(env.t, e.Reason != "FailedPreStopHook" || restarted[e.Regarding.Name], "the hook of the kubelet failed: %s", e.Note)
	}
}

// gatewayService is the Service of the gateway, and the prefix of the name of its Secret.
const gatewayService = "yardmaster-gateway"

// testGateway installs the gateway as docs/gateway.md says, and runs the producer of examples/gateway, with a program instead of curl.
func testGateway(t *testing.T) {
	env := newQueueEnv(t, gatewayNamespace)
	env.patchStrictly(&v1alpha1.Queue{}, `{"spec": {"results": {"retention": "1h"}}}`)
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		env.usePlainWorker(pool, "/yardmaster", "worker", "--exec", "--", "/plain", "once")
		setFixedReplicas(pool, 1, 1)
	})
	env.deployGateway()

	env.runKubectl("apply", "-f", env.producerWithoutCurl(filepath.Join(repositoryRoot, "examples", "gateway", "producer.yaml")))
	poll.Until(env.t, "the producer to have sent its job", func() bool {
		job := get(t, &batchv1.Job{}, env.objectKey("send-order"))
		if job.Status.Failed > 0 {
			t.Fatalf("sending failed: %s", env.runKubectl("logs", "job/send-order"))
		}
		return job.Status.Succeeded == 1
	})
	poll.Until(env.t, "the plugin to show that the job is done", func() bool {
		output, code := runPluginBinary(t, "queue", "job", "orders", "order-7", "-n", env.namespace)
		return code == 0 && strings.Contains(output, "done")
	})
}

func (env *queueEnv) deployGateway() {
	t := env.t
	t.Helper()
	deployments.Lock()
	t.Cleanup(func() {
		defer deployments.Unlock()
		ctx := context.Background()
		require.NoError(t, errors.Join(deployOperator(ctx, watchedNamespaces), waitForOperator(ctx)))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-tls", Namespace: operatorNamespace}}
		if err := cluster.Delete(ctx, secret); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	certificate, key, err := certutil.GenerateSelfSignedCertKey(gatewayService+"."+operatorNamespace+".svc", nil, nil)
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-tls", Namespace: operatorNamespace}}
	secret.Type, secret.Data = corev1.SecretTypeTLS, map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	require.NoError(t, cluster.Create(t.Context(), secret))
	authority := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: gatewayService + "-ca", Namespace: env.namespace}}
	authority.Data = map[string]string{"ca.crt": string(certificate)}
	require.NoError(t, cluster.Create(t.Context(), authority))

	require.NoError(t, deployOperator(t.Context(), watchedNamespaces, "COMPONENTS=gateway"))
	env.runKubectl("create", "role", "yardmaster-gateway-broker", "--verb=get", "--resource=secrets", "--resource-name=broker")
	env.runKubectl("create", "rolebinding", "yardmaster-gateway-broker", "--role=yardmaster-gateway-broker", "--serviceaccount="+operatorNamespace+":"+gatewayService)
	env.runKubectl("-n", operatorNamespace, "rollout", "status", "deployment/"+gatewayService, "--timeout=10m")
}

// producerWithoutCurl writes the example with the plain worker's image, which sends the same request.
func (env *queueEnv) producerWithoutCurl(example string) string {
	t := env.t
	t.Helper()
	raw, err := os.ReadFile(example)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), "        image: localhost/curl\n")
	_, after, hasContext := strings.Cut(rest, "        securityContext:\n")
	require.True(t, found && hasContext, "%s has another form", example)
	command := "        image: " + plainImage + "\n" +
		"        command: [/plain, post, 'https://" + gatewayService + "." + operatorNamespace + ".svc/queues/orders/jobs?id=order-7']\n" +
		"        securityContext:\n"
	path := filepath.Join(t.TempDir(), "producer.yaml")
	require.NoError(t, os.WriteFile(path, []byte(before+command+after), 0o600))
	return path
}

const (
	releaseImage = "release-worker:v1"
	// noDefect is a good release. dependencyDown is one too, but all jobs of the old and the new release fail meanwhile.
	noDefect, dependencyDown = "good", "dependency-down"
	releaseWorkers           = 2 // the number of workers of a pool
	// badReleaseTime is how long a defective release is observed. It is longer than a good one needs.
	badReleaseTime = 75 * time.Second
)

// trial is a release that is rolled out while messages arrive.
type trial struct {
	defect   string
	strategy v1alpha1.RolloutStrategy
	// backlog is true if messages wait when the release is rolled out. Otherwise they arrive more slowly than the workers handle them.
	backlog bool
}

func (c trial) name() string {
	waiting := "idle"
	if c.backlog {
		waiting = "busy"
	}
	return strings.ToLower(fmt.Sprintf("%s-%s-%s", c.defect, c.strategy, waiting))
}

func releaseTrials() []trial {
	var all []trial
	for _, defect := range []string{noDefect, dependencyDown, "idle", "fail", "fail-half", "password", "crash", "unready", "hang"} {
		for _, strategy := range []v1alpha1.RolloutStrategy{v1alpha1.RolloutRolling, v1alpha1.RolloutCanary} {
			for _, backlog := range []bool{false, true} {
				all = append(all, trial{defect, strategy, backlog})
			}
		}
	}
	return all
}

// testReleases rolls out good and defective releases at the same time, each in a pool of its own.
func testReleases(t *testing.T) {
	env := newQueueEnv(t, releaseNamespace)
	env.requireLogin("worker:right@", "--user=worker", "--pass=right")
	env.runKubectl("patch", "secret", "broker", "-p", fmt.Sprintf(`{"stringData":{"url":%q}}`, env.brokerURL()))
	for _, c := range releaseTrials() {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			own := *env
			own.t, own.sentBatches = t, nil
			(&releaseTest{queueEnv: &own, trial: c}).run()
		})
	}
}

// requireLogin restarts the broker with authentication and uses the login from then on.
func (env *queueEnv) requireLogin(user string, args ...string) {
	args = append([]string{"--jetstream", "--store_dir=/data", "--port=4222", "--http_port=8222"}, args...)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "nats", "args": args}},
	}}}})
	require.NoError(env.t, err)
	env.runKubectl("patch", "statefulset", "nats", "-p", string(patch))
	env.runKubectl("rollout", "status", "statefulset/nats", "--timeout=10m")
	env.brokerUser = user
}

type releaseTest struct {
	*queueEnv
	trial trial
}

func (r *releaseTest) run() {
	r.createQueue(r.trial.name(), func(q *v1alpha1.Queue) {
		q.Spec.Retry = &v1alpha1.Retry{Limit: new(int32(49)), Backoff: v1alpha1.NewDuration(time.Second), MaxBackoff: v1alpha1.NewDuration(time.Second)}
	})
	r.createReleasePool()
	poll.Until(r.t, "the first release to serve", func() bool { return r.pool().Status.Ready == releaseWorkers })
	good := r.pool().Status.CurrentRevision
	// 2 workers with 2 jobs of 100 ms handle 40 messages per second.
	batch := jobBatch{queue: r.trial.name(), run: r.trial.name(), jobs: 400, rate: 4}
	if r.trial.backlog {
		batch.jobs, batch.rate = 4000, 400
	}
	r.sendBatch(batch)
	r.release("2", r.trial.defect)
	if r.trial.defect == noDefect || r.trial.defect == dependencyDown {
		poll.Until(r.t, "the good release to be promoted", func() bool {
			pool := r.pool()
			return pool.Status.CurrentRevision != good && meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady)
		})
	} else {
		r.wantOldReleaseServes(good)
	}
	r.release("3", noDefect)
	r.waitUntilAllDone()
}

func (r *releaseTest) createReleasePool() {
	name := r.trial.name()
	r.createPoolFromExample("orders/workerpool.yaml", func(pool *v1alpha1.WorkerPool) {
		setFixedReplicas(pool, releaseWorkers, 2)
		pool.Name = name
		pool.Spec.Queues = []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name}}}
		pool.Spec.Image, pool.Spec.Version = releaseImage, ""
		pool.Spec.Template.Spec.Containers[0].Resources.Requests = nil
		worker := &pool.Spec.Template.Spec.Containers[0]
		worker.Env = r.environment(noDefect)
		if r.trial.defect == dependencyDown {
			worker.Env = r.environment(dependencyDown)
		}
		pool.Spec.Drain = &v1alpha1.Drain{Timeout: v1alpha1.NewDuration(10 * time.Second), OnTimeout: v1alpha1.DrainRequeue}
		pool.Spec.Rollout = &v1alpha1.Rollout{Strategy: r.trial.strategy}
		if r.trial.strategy == v1alpha1.RolloutCanary {
			pool.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 50, Pause: v1alpha1.NewDuration(5 * time.Second)}}
		}
	})
}

func (r *releaseTest) pool() *v1alpha1.WorkerPool {
	return get(r.t, &v1alpha1.WorkerPool{}, r.objectKey(r.trial.name()))
}

func (r *releaseTest) environment(defect string) []corev1.EnvVar {
	wrong := strings.Replace(r.brokerURL(), ":right@", ":wrong@", 1)
	return []corev1.EnvVar{{Name: "BROKER", Value: wrong}, {Name: "DEFECT", Value: defect}}
}

func (r *releaseTest) release(version, defect string) {
	r.t.Helper()
	pool := r.pool()
	before := pool.DeepCopy()
	pool.Spec.Version, pool.Spec.Template.Spec.Containers[0].Env = version, r.environment(defect)
	require.NoError(r.t, cluster.Patch(r.t.Context(), pool, client.MergeFrom(before)))
}

func (r *releaseTest) wantOldReleaseServes(good string) {
	deadline := time.Now().Add(badReleaseTime)
	for time.Now().Before(deadline) {
		pool := r.pool()
		require.True(r.t, pool.Status.CurrentRevision == good, "revision %s was promoted: %+v", pool.Status.CurrentRevision, pool.Status.Conditions)
		if ready := readyWorkersIn(pool, good); ready < r.trial.minOldWorkers() {
			r.t.Fatalf("%d workers of the old release are ready, want %d: %+v", ready, r.trial.minOldWorkers(), pool.Status.Revisions)
		}
		select {
		case <-time.After(time.Second):
		case <-r.t.Context().Done():
			r.t.Fatal(r.t.Context().Err())
		}
	}
	poll.Until(r.t, "the old release to have all of its workers", func() bool { return readyWorkersIn(r.pool(), good) == releaseWorkers })
}

// minOldWorkers returns how many workers of the old release must always be ready. A worker of which half of
// the jobs succeed replaces an old one, until enough jobs have failed.
func (c trial) minOldWorkers() int32 {
	if c.defect == "fail-half" {
		return 1
	}
	return releaseWorkers
}

func readyWorkersIn(pool *v1alpha1.WorkerPool, revision string) (ready int32) {
	for _, status := range pool.Status.Revisions {
		if status.Name == revision {
			ready = status.Ready
		}
	}
	return ready
}

const (
	// defaultJobCount is the number of jobs of a test; make soak sends more. All are sent within sendDuration.
	defaultJobCount    = 3000
	sendDuration       = 50 * time.Second
	defaultJobDuration = 300 * time.Millisecond
)

type jobBatch struct {
	queue string
	// run is the prefix of the names of the jobs.
	run        string
	jobs, rate int
	// endless is true if jobs are sent until endBatches, instead of a number of them: what a test does meanwhile
	// takes longer on a busy node than on an idle one.
	endless bool
	takes   time.Duration
}

func newQueueEnv(t *testing.T, ns string) *queueEnv {
	t.Helper()
	env := &queueEnv{t: t, namespace: ns, jobCount: defaultJobCount, jobDuration: defaultJobDuration}
	if number, err := strconv.Atoi(os.Getenv("E2E_JOBS")); err == nil {
		env.jobCount = number
	}
	env.jobRate = env.jobCount / int(sendDuration.Seconds())
	t.Cleanup(func() {
		if t.Failed() {
			return // hack/with-cluster keeps a description of what exists after a failure
		}
		// Idle workers take processor time from other tests.
		require.NoError(t, cluster.DeleteAllOf(context.Background(), &v1alpha1.WorkerPool{}, client.InNamespace(ns)))
	})
	env.deployNATS()
	env.runKubectl("rollout", "status", "statefulset/nats", "--timeout=10m")
	for _, file := range []string{"ledger", "queue"} {
		env.runKubectl("apply", "-f", filepath.Join(repositoryRoot, "examples", "orders", file+".yaml"))
	}
	env.runKubectl("patch", "secret", "broker", "-p", fmt.Sprintf(`{"stringData":{"url":%q}}`, env.brokerURL()))
	env.waitUntilQueueReady("orders")
	return env
}

// deployNATS deploys NATS in the namespace, with a low request of CPU: the servers of all tests stay, and together would reserve the whole node.
func (env *queueEnv) deployNATS() {
	env.t.Helper()
	base, err := filepath.Abs(filepath.Join(repositoryRoot, "config", "nats"))
	require.NoError(env.t, err)
	dir := env.t.TempDir()
	base, err = filepath.Rel(dir, base)
	require.NoError(env.t, err)
	patch := `[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "5m"}]`
	overlay := fmt.Sprintf("namespace: %s\nresources: [%s]\npatches:\n- {target: {kind: StatefulSet}, patch: '%s'}\n", env.namespace, base, patch)
	require.NoError(env.t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600))
	env.runKubectl("apply", "-k", dir)
}

func (env *queueEnv) brokerURL() string {
	return "nats://" + env.brokerUser + "nats." + env.namespace + ":4222"
}

func (env *queueEnv) waitUntilQueueReady(name string) {
	env.t.Helper()
	poll.Until(env.t, "the Queue "+name+" to be ready", func() bool {
		return meta.IsStatusConditionTrue(env.getQueue(name).Status.Conditions, v1alpha1.ConditionReady)
	})
}

func (env *queueEnv) createPool(change func(pool *v1alpha1.WorkerPool)) {
	env.t.Helper()
	env.createPoolFromExample("orders/workerpool.yaml", change)
}

func (env *queueEnv) createPoolFromExample(example string, change func(pool *v1alpha1.WorkerPool)) {
	env.t.Helper()
	raw, err := os.ReadFile(filepath.Join(repositoryRoot, "examples", filepath.FromSlash(example)))
	require.NoError(env.t, err)
	pool := &v1alpha1.WorkerPool{}
	require.NoError(env.t, yaml.Unmarshal(raw, pool))
	pool.Namespace = env.namespace
	if change != nil {
		change(pool)
	}
	require.NoError(env.t, cluster.Create(env.t.Context(), pool))
}

func (env *queueEnv) objectKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: env.namespace, Name: name}
}

func (env *queueEnv) getPool() *v1alpha1.WorkerPool {
	return get(env.t, &v1alpha1.WorkerPool{}, env.objectKey("orders"))
}

func (env *queueEnv) getQueue(name string) *v1alpha1.Queue {
	return get(env.t, &v1alpha1.Queue{}, env.objectKey(name))
}

func (env *queueEnv) runKubectl(args ...string) string {
	env.t.Helper()
	command := newKubectlCommand(env.t.Context(), append([]string{"-n", env.namespace}, args...)...)
	output, err := command.CombinedOutput()
	require.True(env.t, err == nil, "%s: %v\n%s", command, err, output)
	return string(output)
}

func (env *queueEnv) runLoadgen(name string, args ...string) {
	env.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: env.namespace}}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Spec = env.newPodSpec("/ledger-tool", args...)
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(env.t, cluster.Create(env.t.Context(), job))
}

// newPodSpec returns a Pod with the ledger that runs a program of the worker's image.
func (*queueEnv) newPodSpec(program string, args ...string) corev1.PodSpec {
	pod := restrictedPod("worker", "example-worker:v1", append([]string{program}, args...)...)
	pod.TerminationGracePeriodSeconds = nil
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "LEDGER", Value: "/ledger/lines"}}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "ledger", MountPath: "/ledger"}}
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "ledger"}
	pod.Volumes = []corev1.Volume{{Name: "ledger", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
	return pod
}

func (env *queueEnv) sendBatch(b jobBatch) {
	env.t.Helper()
	load := fmt.Sprintf("send -url=%s -queue=%s -run=%s -jobs=%d -rate=%d -milliseconds=%d",
		env.brokerURL(), b.queue, b.run, b.jobs, b.rate, b.takes.Milliseconds())
	if b.endless {
		load += " -until=" + b.endFile()
	}
	env.sentBatches = append(env.sentBatches, b)
	env.runLoadgen("send-"+b.run, strings.Fields(load)...)
}

// endFile returns the path of the file that ends an endless batch. Then it contains the number of its jobs.
func (b *jobBatch) endFile() string { return "/ledger/" + b.run + ".end" }

func (env *queueEnv) endBatches() {
	env.t.Helper()
	for _, b := range env.sentBatches {
		if b.endless {
			env.runLoadgen("end-"+b.run, "end", "-file="+b.endFile())
		}
	}
}

// sendCompletionTime returns when the last job was sent. It is zero while jobs are being sent.
func (env *queueEnv) sendCompletionTime() time.Time {
	env.t.Helper()
	var last time.Time
	for _, b := range env.sentBatches {
		job := get(env.t, &batchv1.Job{}, env.objectKey("send-"+b.run))
		if job.Status.Failed > 0 {
			env.t.Fatalf("sending failed: %s", env.runKubectl("logs", "job/"+job.Name))
		}
		if job.Status.CompletionTime == nil {
			return time.Time{}
		}
		last = slices.MaxFunc([]time.Time{last, job.Status.CompletionTime.Time}, time.Time.Compare)
	}
	return last
}

// waitUntilAllDone waits until all jobs are sent and their queues are empty. The operator does not write again that an idle
// queue is empty, so the spec of the Queue is changed until its status is younger than the last job.
func (env *queueEnv) waitUntilAllDone() {
	env.t.Helper()
	var at time.Time
	poll.Until(env.t, "all jobs to be sent", func() bool {
		at = env.sendCompletionTime()
		return !at.IsZero()
	})
	for _, b := range env.sentBatches {
		var changed time.Time
		poll.Until(env.t, "the Queue "+b.queue+" to be empty", func() bool {
			if env.isQueueEmpty(b.queue, at) {
				return true
			}
			if time.Since(changed) > 5*time.Second {
				changed = time.Now()
				queue := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: b.queue, Namespace: env.namespace}}
				patch := fmt.Appendf(nil, `{"spec":{"deadLetter":{"alertThreshold":%d}}}`, changed.Unix())
				require.NoError(env.t, cluster.Patch(env.t.Context(), queue, client.RawPatch(types.MergePatchType, patch)))
			}
			return false
		})
	}
}

// isQueueEmpty reports whether the Queue's status, measured after the given time, shows no messages.
func (env *queueEnv) isQueueEmpty(name string, after time.Time) bool {
	s := &env.getQueue(name).Status
	return s.MeasuredTime != nil && s.MeasuredTime.After(after) && s.Backlog != nil && *s.Backlog == 0 && s.InFlight != nil && *s.InFlight == 0 && (s.Delayed == nil || *s.Delayed == 0)
}

// wantEachDoneOnce checks that each job of the runs was done exactly once, and that at least the given number of revisions worked on the first run.
func (env *queueEnv) wantEachDoneOnce(revisions int, runs ...string) {
	env.t.Helper()
	for _, b := range env.sentBatches {
		if !slices.Contains(runs, b.run) {
			continue
		}
		result := env.verifyBatch(b)
		require.True(env.t, result.EachDoneOnce() && (b.run != runs[0] || result.Revisions >= revisions), "run %s: %+v", b.run, result)
	}
}

func (env *queueEnv) verifyBatch(b jobBatch) verify.LedgerResult {
	env.t.Helper()
	jobs := fmt.Sprintf("-jobs=%d", b.jobs)
	if b.endless {
		jobs = "-jobs-from=" + b.endFile()
	}
	env.runLoadgen("verify-"+b.run, "verify", "-run="+b.run, jobs)
	var name string
	poll.Until(env.t, "the ledger to be verified", func() bool {
		pods, err := clientset.CoreV1().Pods(env.namespace).List(env.t.Context(), metav1.ListOptions{LabelSelector: "job-name=verify-" + b.run})
		if err != nil || len(pods.Items) == 0 {
			return false
		}
		name = pods.Items[0].Name
		phase := pods.Items[0].Status.Phase
		return phase == corev1.PodSucceeded || phase == corev1.PodFailed
	})
	var v verify.LedgerResult
	_, output, _ := strings.Cut(readLog(env.t, env.namespace, name, ""), "{") // the program also prints its error
	line, _, _ := strings.Cut(output, "\n")
	err := json.Unmarshal([]byte("{"+line), &v)
	require.True(env.t, err == nil, "%v: %s", err, output)
	env.t.Log(v.String())
	return v
}

// rollOutAndScaleRepeatedly rolls the pool out and scales it while jobs are being sent. It calls each after every change.
func (env *queueEnv) rollOutAndScaleRepeatedly(each func(turn int)) {
	pause := max(time.Duration(env.jobCount/env.jobRate)*time.Second/8, 5*time.Second)
	for turn := 1; env.sendCompletionTime().IsZero(); turn++ {
		env.patchPool(fmt.Sprintf(`{"spec":{"version":"%d"}}`, turn+1))
		env.patchPool(fmt.Sprintf(`{"spec":{"autoscaling":{"maxReplicas":%d}}}`, 4+rand.IntN(4)))
		each(turn)
		select {
		case <-time.After(pause):
		case <-env.t.Context().Done():
			env.t.Fatal(env.t.Context().Err())
		}
	}
}

func (env *queueEnv) workerPods() []corev1.Pod {
	env.t.Helper()
	return slices.DeleteFunc(podsWith(env.t, env.namespace, nil), func(pod corev1.Pod) bool { return !strings.HasPrefix(pod.Name, "orders-") })
}

func testNoJobIsLostWhenPodsAreKilled(t *testing.T) {
	env := newQueueEnv(t, disruptionNamespace)
	env.createPool(nil)
	env.sendBatch(jobBatch{queue: "orders", run: "job", jobs: env.jobCount, rate: env.jobRate, takes: env.jobDuration})
	inFlight := 0
	env.rollOutAndScaleRepeatedly(func(turn int) {
		const concurrency = 10 // of one worker
		workers := env.workerPods()
		if turn%3 == 0 { // leases can expire while the broker is away
			env.runKubectl("delete", "pod", "nats-0", "--grace-period=0", "--force")
			inFlight += concurrency * len(workers)
			return
		}
		for _, pod := range workers {
			if rand.IntN(2) == 0 && pod.Status.Phase == corev1.PodRunning {
				env.runKubectl("delete", "pod", pod.Name, "--grace-period=0", "--force", "--ignore-not-found")
				inFlight += concurrency
			}
		}
	})
	env.waitUntilAllDone()
	result := env.verifyBatch(jobBatch{run: "job", jobs: env.jobCount})
	require.True(t, result.Done == result.Sent && len(result.Unexpected) == 0, "unexpected ledger: %+v", result)
	if limit := inFlight + 60; result.Repeated > limit { // plus those of workers that start or stop meanwhile
		t.Errorf("%d jobs were repeated, but at most %d were in flight", result.Repeated, limit)
	}
}
