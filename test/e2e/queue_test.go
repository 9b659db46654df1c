//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	// defaultJobCount is the number of jobs of a test; make soak sends more. All are sent within sendDuration.
	defaultJobCount    = 3000
	sendDuration       = 50 * time.Second
	defaultJobDuration = 300 * time.Millisecond
)

// queueEnv is a namespace with NATS, the Queue orders and the WorkerPool orders of examples/orders.
type queueEnv struct {
	t                 *testing.T
	namespace         string
	brokerUser        string // the login in the broker's URL, such as "user:password@"
	jobCount, jobRate int
	jobDuration       time.Duration
	sentBatches       []jobBatch
}

// jobBatch describes jobs to send to a queue.
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

// newQueueEnv deploys one NATS server and the Queue in the namespace.
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

// brokerURL returns the URL of the NATS server in the namespace.
func (env *queueEnv) brokerURL() string {
	return "nats://" + env.brokerUser + "nats." + env.namespace + ":4222"
}

func (env *queueEnv) waitUntilQueueReady(name string) {
	env.t.Helper()
	poll.Until(env.t, "the Queue "+name+" to be ready", func() bool {
		var queue v1alpha1.Queue
		return cluster.Get(env.t.Context(), env.objectKey(name), &queue) == nil && meta.IsStatusConditionTrue(queue.Status.Conditions, v1alpha1.ConditionReady)
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
	env.t.Helper()
	pool := &v1alpha1.WorkerPool{}
	require.NoError(env.t, cluster.Get(env.t.Context(), env.objectKey("orders"), pool))
	return pool
}

func (env *queueEnv) getQueue(name string) *v1alpha1.Queue {
	env.t.Helper()
	q := &v1alpha1.Queue{}
	require.NoError(env.t, cluster.Get(env.t.Context(), env.objectKey(name), q))
	return q
}

func (env *queueEnv) runKubectl(args ...string) string {
	env.t.Helper()
	command := newKubectlCommand(env.t.Context(), append([]string{"-n", env.namespace}, args...)...)
	output, err := command.CombinedOutput()
	require.True(env.t, err == nil, "%s: %v\n%s", command, err, output)
	return string(output)
}

// runLoadgen runs the load generator in the cluster, as a Job.
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
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		SecurityContext:              restrictedPodSecurityContext(),
		Containers: []corev1.Container{{
			Name: "worker", Image: "example-worker:v1", Command: append([]string{program}, args...),
			Env:             []corev1.EnvVar{{Name: "LEDGER", Value: "/ledger/lines"}},
			SecurityContext: restrictedSecurityContext(),
			VolumeMounts:    []corev1.VolumeMount{{Name: "ledger", MountPath: "/ledger"}},
		}},
		Volumes: []corev1.Volume{{Name: "ledger", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "ledger"},
		}}},
	}
}

// sendJobs starts to send the jobs at their rate.
func (env *queueEnv) sendJobs() {
	env.t.Helper()
	env.sendBatch(jobBatch{queue: "orders", run: "job", jobs: env.jobCount, rate: env.jobRate, takes: env.jobDuration})
}

func (env *queueEnv) sendBatch(b jobBatch) {
	env.t.Helper()
	load := []string{fmt.Sprintf("-jobs=%d", b.jobs), fmt.Sprintf("-rate=%d", b.rate)}
	if b.endless {
		load = append(load, "-until="+b.endFile())
	}
	env.sentBatches = append(env.sentBatches, b)
	env.runLoadgen("send-"+b.run, slices.Concat([]string{"send", "-url=" + env.brokerURL(), "-queue=" + b.queue, "-run=" + b.run}, load, []string{
		fmt.Sprintf("-milliseconds=%d", b.takes.Milliseconds()),
	})...)
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

func (env *queueEnv) isSending() bool {
	env.t.Helper()
	return env.sendCompletionTime().IsZero()
}

// sendCompletionTime returns when the last job was sent. It is zero while jobs are being sent.
func (env *queueEnv) sendCompletionTime() time.Time {
	env.t.Helper()
	var last time.Time
	for _, b := range env.sentBatches {
		job := &batchv1.Job{}
		require.NoError(env.t, cluster.Get(env.t.Context(), env.objectKey("send-"+b.run), job))
		if job.Status.Failed > 0 {
			env.t.Fatalf("sending failed: %s", env.runKubectl("logs", "job/"+job.Name))
		}
		if job.Status.CompletionTime == nil {
			return time.Time{}
		}
		if at := job.Status.CompletionTime.Time; at.After(last) {
			last = at
		}
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
	var queue v1alpha1.Queue
	if cluster.Get(env.t.Context(), env.objectKey(name), &queue) != nil {
		return false
	}
	s := &queue.Status
	return s.MeasuredTime != nil && s.MeasuredTime.After(after) && s.Backlog != nil && *s.Backlog == 0 && s.InFlight != nil && *s.InFlight == 0 && (s.Delayed == nil || *s.Delayed == 0)
}

// verifyJobs verifies the ledger for the jobs of sendJobs.
func (env *queueEnv) verifyJobs() verify.LedgerResult {
	env.t.Helper()
	return env.verifyBatch(jobBatch{run: "job", jobs: env.jobCount})
}

// wantEachDoneOnce checks that each job of the runs was done exactly once, and that at least the given number of revisions worked on the first run.
func (env *queueEnv) wantEachDoneOnce(revisions int, runs ...string) {
	env.t.Helper()
	for _, b := range env.sentBatches {
		if !slices.Contains(runs, b.run) {
			continue
		}
		result := env.verifyBatch(b)
		if !result.EachDoneOnce() || b.run == runs[0] && result.Revisions < revisions {
			env.t.Errorf("run %s: %+v", b.run, result)
		}
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
	if err := json.Unmarshal([]byte("{"+line), &v); err != nil {
		env.t.Fatalf("%v: %s", err, output)
	}
	env.t.Log(v.String())
	return v
}

// rollOutVersion changes the pool's version.
func (env *queueEnv) rollOutVersion(version int) {
	env.t.Helper()
	env.patchPool(fmt.Sprintf(`{"spec":{"version":"%d"}}`, version))
}

// setMaxReplicas changes the pool's maxReplicas, so that it scales up or down.
func (env *queueEnv) setMaxReplicas(replicas int) {
	env.t.Helper()
	env.patchPool(fmt.Sprintf(`{"spec":{"autoscaling":{"maxReplicas":%d}}}`, replicas))
}

// rollOutAndScaleRepeatedly rolls the pool out and scales it while jobs are being sent. It calls each after every change.
func (env *queueEnv) rollOutAndScaleRepeatedly(each func(turn int)) {
	env.t.Helper()
	pause := max(time.Duration(env.jobCount/env.jobRate)*time.Second/8, 5*time.Second)
	for turn := 1; env.isSending(); turn++ {
		env.rollOutVersion(turn + 1)
		env.setMaxReplicas(4 + rand.IntN(4))
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
	pods := podsWith(env.t, env.namespace, nil)
	var workers []corev1.Pod
	for _, pod := range pods {
		if strings.HasPrefix(pod.Name, "orders-") {
			workers = append(workers, pod)
		}
	}
	return workers
}

func testNoJobIsLostWhenPodsAreKilled(t *testing.T) {
	env := newQueueEnv(t, disruptionNamespace)
	env.createPool(nil)
	env.sendJobs()
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
	result := env.verifyJobs()
	require.True(t, result.Done == result.Sent && len(result.Unexpected) == 0, "unexpected ledger: %+v", result)
	if limit := inFlight + 60; result.Repeated > limit { // plus those of workers that start or stop meanwhile
		t.Errorf("%d jobs were repeated, but at most %d were in flight", result.Repeated, limit)
	}
}
