//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// plainImage contains the plain worker and the operator's binary.
const plainImage = "plain-worker:v1"

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
	dead := q.Status.Dead
	require.True(env.t, dead != nil && *dead == letters, "status of Queue %s: %+v, want %d dead letters", queue, q.Status, letters)
}

// waitUntilInFlight waits until the Queue's status shows at least the given number of messages in flight.
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
	env.t.Helper()
	var events eventsv1.EventList
	require.NoError(env.t, cluster.List(env.t.Context(), &events, client.InNamespace(env.namespace)))
	restarted := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "Created" && (e.Series != nil || e.DeprecatedCount > 1) {
			restarted[e.Regarding.Name] = true
		}
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "FailedPreStopHook" && !restarted[e.Regarding.Name] {
			env.t.Errorf("the hook of the kubelet failed: %s", e.Note)
		}
	}
}

// gatewayService is the Service of the gateway, and the prefix of the name of its Secret.
const gatewayService = "yardmaster-gateway"

// testGateway installs the gateway as docs/gateway.md says, and runs the producer of examples/gateway, with a program instead of curl.
func testGateway(t *testing.T) {
	env := newQueueEnv(t, gatewayNamespace)
	env.patchQueue(`{"spec": {"results": {"retention": "1h"}}}`)
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		env.usePlainWorker(pool, "/yardmaster", "worker", "--exec", "--", "/plain", "once")
		setFixedReplicas(pool, 1, 1)
	})
	env.deployGateway()

	env.runKubectl("apply", "-f", env.producerWithoutCurl(filepath.Join(repositoryRoot, "examples", "gateway", "producer.yaml")))
	poll.Until(env.t, "the producer to have sent its job", func() bool {
		job := &batchv1.Job{}
		require.NoError(t, cluster.Get(t.Context(), env.objectKey("send-order"), job))
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

// deployGateway deploys the gateway until the test ends, with a certificate, and the permission for the broker's Secret.
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
	// releaseWorkers is the number of workers of a pool.
	releaseWorkers = 2
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

// releaseTrials returns all combinations.
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
	t.Helper()
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
	env.t.Helper()
	args = append([]string{"--jetstream", "--store_dir=/data", "--port=4222", "--http_port=8222"}, args...)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "nats", "args": args}},
	}}}})
	require.NoError(env.t, err)
	env.runKubectl("patch", "statefulset", "nats", "-p", string(patch))
	env.runKubectl("rollout", "status", "statefulset/nats", "--timeout=10m")
	env.brokerUser = user
}

// releaseTest is the rollout of one release.
type releaseTest struct {
	*queueEnv
	trial trial
}

func (r *releaseTest) run() {
	r.createQueue(r.trial.name(), func(q *v1alpha1.Queue) {
		q.Spec.Retry = &v1alpha1.Retry{Limit: new(int32(49)), Backoff: durationOfSeconds(1), MaxBackoff: durationOfSeconds(1)}
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
		r.waitUntilPromoted(good)
	} else {
		r.wantOldReleaseServes(good)
	}
	r.release("3", noDefect)
	r.waitUntilAllDone()
}

// waitUntilPromoted waits until another release has replaced this one.
func (r *releaseTest) waitUntilPromoted(old string) {
	r.t.Helper()
	poll.Until(r.t, "the good release to be promoted", func() bool {
		pool := r.pool()
		return pool.Status.CurrentRevision != old && meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady)
	})
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
		pool.Spec.Drain = &v1alpha1.Drain{Timeout: durationOfSeconds(10), OnTimeout: v1alpha1.DrainRequeue}
		pool.Spec.Rollout = &v1alpha1.Rollout{Strategy: r.trial.strategy}
		if r.trial.strategy == v1alpha1.RolloutCanary {
			pool.Spec.Rollout.Steps = []v1alpha1.RolloutStep{{Percent: 50, Pause: durationOfSeconds(5)}}
		}
	})
}

func (r *releaseTest) pool() *v1alpha1.WorkerPool {
	r.t.Helper()
	pool := &v1alpha1.WorkerPool{}
	require.NoError(r.t, cluster.Get(r.t.Context(), r.objectKey(r.trial.name()), pool))
	return pool
}

// environment of the workers of a release.
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

// wantOldReleaseServes checks that the defective release is never promoted, and the old one keeps all of its workers.
func (r *releaseTest) wantOldReleaseServes(good string) {
	r.t.Helper()
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
	poll.Until(r.t, "the old release to have all of its workers", func() bool {
		return readyWorkersIn(r.pool(), good) == releaseWorkers
	})
}

// minOldWorkers returns how many workers of the old release must always be ready. A worker of which half of
// the jobs succeed replaces an old one, until enough jobs have failed.
func (c trial) minOldWorkers() int32 {
	if c.defect == "fail-half" {
		return 1
	}
	return releaseWorkers
}

func readyWorkersIn(pool *v1alpha1.WorkerPool, revision string) int32 {
	for _, status := range pool.Status.Revisions {
		if status.Name == revision {
			return status.Ready
		}
	}
	return 0
}
