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

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

// How many jobs a test has, how many come in a second, and how long each takes.
const (
	jobsDefault = 10_000
	jobsRate    = 200
	jobTakes    = 300 * time.Millisecond
)

// office is a namespace with NATS, the Queue orders and the WorkerPool clerks, as
// examples/orders has them.
type office struct {
	t          *testing.T
	ns         string
	jobs, rate int
	takes      time.Duration
	// user that the broker lets in, as a URL has it.
	user string
	sent []batch
}

// batch is jobs that are sent to a queue.
type batch struct {
	queue string
	// run is what their names begin with.
	run        string
	jobs, rate int
	takes      time.Duration
}

// open makes an office of its own.
func open(t *testing.T, ns string) *office {
	t.Helper()
	o := &office{t: t, ns: ns, jobs: jobsDefault, rate: jobsRate, takes: jobTakes}
	if number, err := strconv.Atoi(os.Getenv("E2E_JOBS")); err == nil {
		o.jobs = number
	}
	o.nats()
	o.kubectl("rollout", "status", "statefulset/nats", "--timeout=90s")
	for _, file := range []string{"ledger", "queue"} {
		o.kubectl("apply", "-f", filepath.Join(root, "examples", "orders", file+".yaml"))
	}
	o.kubectl("patch", "secret", "broker", "-p", fmt.Sprintf(`{"stringData":{"url":%q}}`, o.url()))
	o.untilReady("orders")
	t.Cleanup(func() {
		if t.Failed() {
			o.explain()
		}
	})
	return o
}

// nats puts the server of config/nats into the office.
func (o *office) nats() {
	o.t.Helper()
	base, err := filepath.Abs(filepath.Join(root, "config", "nats"))
	must(o.t, err)
	dir := o.t.TempDir()
	base, err = filepath.Rel(dir, base)
	must(o.t, err)
	overlay := fmt.Sprintf("namespace: %s\nresources: [%s]\n", o.ns, base)
	must(o.t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600))
	o.kubectl("apply", "-k", dir)
}

// url of the office's own NATS.
func (o *office) url() string { return "nats://" + o.user + "nats." + o.ns + ":4222" }

// untilReady waits until the queue is on its broker.
func (o *office) untilReady(name string) {
	o.t.Helper()
	o.until("the queue "+name+" to be there", patience, func() bool {
		var queue v1alpha1.Queue
		return cluster.Get(o.t.Context(), o.key(name), &queue) == nil && isTrue(queue.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// hire makes the WorkerPool, changed as the test wants it.
func (o *office) hire(change func(pool *v1alpha1.WorkerPool)) {
	o.t.Helper()
	o.hireAs("orders/workerpool.yaml", change)
}

// hireAs makes the WorkerPool of an example.
func (o *office) hireAs(example string, change func(pool *v1alpha1.WorkerPool)) {
	o.t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "examples", filepath.FromSlash(example)))
	must(o.t, err)
	pool := &v1alpha1.WorkerPool{}
	must(o.t, yaml.Unmarshal(raw, pool))
	pool.Namespace = o.ns
	if change != nil {
		change(pool)
	}
	must(o.t, cluster.Create(o.t.Context(), pool))
}

func (o *office) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: o.ns, Name: name}
}

func (o *office) pool() *v1alpha1.WorkerPool {
	o.t.Helper()
	pool := &v1alpha1.WorkerPool{}
	must(o.t, cluster.Get(o.t.Context(), o.key("clerks"), pool))
	return pool
}

func (o *office) until(what string, limit time.Duration, condition func() bool) {
	o.t.Helper()
	err := wait.PollUntilContextTimeout(o.t.Context(), often, limit, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		o.t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (o *office) kubectl(args ...string) string {
	o.t.Helper()
	command := kubectl(o.t.Context(), append([]string{"-n", o.ns}, args...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return string(output)
}

// tool runs the ledger program in the cluster, as a Job.
func (o *office) tool(name string, args ...string) {
	o.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: o.ns}}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Spec = o.podSpec("/ledger-tool", args...)
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	must(o.t, cluster.Create(o.t.Context(), job))
}

// podSpec is of a Pod with the ledger, that runs a program of the worker's image.
func (*office) podSpec(program string, args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "worker", Image: "example-worker:v1", Command: append([]string{program}, args...),
			Env:             []corev1.EnvVar{{Name: "LEDGER", Value: "/ledger/lines"}},
			SecurityContext: restricted(),
			VolumeMounts:    []corev1.VolumeMount{{Name: "ledger", MountPath: "/ledger"}},
		}},
		Volumes: []corev1.Volume{{Name: "ledger", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "ledger"},
		}}},
	}
}

// send sends the jobs at their rate, and does not wait for that.
func (o *office) send() {
	o.t.Helper()
	o.dispatch(batch{queue: "orders", run: "job", jobs: o.jobs, rate: o.rate, takes: o.takes})
}

func (o *office) dispatch(b batch) {
	o.t.Helper()
	o.sent = append(o.sent, b)
	o.tool("send-"+b.run, "send", "-url="+o.url(), "-queue="+b.queue, "-run="+b.run, fmt.Sprintf("-jobs=%d", b.jobs),
		fmt.Sprintf("-rate=%d", b.rate), fmt.Sprintf("-milliseconds=%d", b.takes.Milliseconds()))
}

func (o *office) sending() bool {
	o.t.Helper()
	return o.sentAt().IsZero()
}

// sentAt is when the last job was sent; zero as long as there are more.
func (o *office) sentAt() time.Time {
	o.t.Helper()
	var last time.Time
	for _, b := range o.sent {
		job := &batchv1.Job{}
		must(o.t, cluster.Get(o.t.Context(), o.key("send-"+b.run), job))
		if job.Status.Failed > 0 {
			o.t.Fatalf("sending failed: %s", o.kubectl("logs", "job/"+job.Name))
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

// untilDone waits until all jobs are sent and nothing of them is in the queue.
func (o *office) untilDone() {
	o.t.Helper()
	limit := 4 * time.Minute
	for _, b := range o.sent {
		limit += time.Duration(b.jobs/b.rate) * time.Second
	}
	o.until("all jobs to be sent and done", limit, func() bool {
		at := o.sentAt()
		return !at.IsZero() && !slices.ContainsFunc(o.sent, func(b batch) bool { return !o.isEmpty(b.queue, at) })
	})
}

// isEmpty tells whether the queue is known to have no messages after that time.
func (o *office) isEmpty(name string, after time.Time) bool {
	var queue v1alpha1.Queue
	if cluster.Get(o.t.Context(), o.key(name), &queue) != nil {
		return false
	}
	s := &queue.Status
	return s.MeasuredTime != nil && s.MeasuredTime.After(after) && s.Ready != nil && *s.Ready == 0 && s.InFlight != nil && *s.InFlight == 0 && (s.Delayed == nil || *s.Delayed == 0)
}

// verdict is what the ledger says.
func (o *office) verdict() verify.LedgerResult {
	o.t.Helper()
	return o.judge("job", o.jobs)
}

// wantOnce checks that each job of those runs was done once, and that so many revisions have
// worked on the first of them.
func (o *office) wantOnce(revisions int, runs ...string) {
	o.t.Helper()
	for _, b := range o.sent {
		if !slices.Contains(runs, b.run) {
			continue
		}
		verdict := o.judge(b.run, b.jobs)
		if !verdict.EachDoneOnce() || b.run == runs[0] && verdict.Revisions < revisions {
			o.t.Errorf("%s: %+v", b.run, verdict)
		}
	}
}

func (o *office) judge(run string, jobs int) verify.LedgerResult {
	o.t.Helper()
	o.tool("verify-"+run, "verify", "-run="+run, fmt.Sprintf("-jobs=%d", jobs))
	var output string
	o.until("the verdict", patience, func() bool {
		pods, err := clientset.CoreV1().Pods(o.ns).List(o.t.Context(), metav1.ListOptions{LabelSelector: "job-name=verify-" + run})
		if err != nil || len(pods.Items) == 0 {
			return false
		}
		phase := pods.Items[0].Status.Phase
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return false
		}
		raw, err := clientset.CoreV1().Pods(o.ns).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(o.t.Context())
		output = string(raw)
		return err == nil
	})
	var v verify.LedgerResult
	_, output, _ = strings.Cut(output, "{") // beside it stands why the program failed
	line, _, _ := strings.Cut(output, "\n")
	if err := json.Unmarshal([]byte("{"+line), &v); err != nil {
		o.t.Fatalf("%v: %s", err, output)
	}
	o.t.Log(v.String())
	return v
}

func (o *office) explain() {
	for _, args := range [][]string{
		{"get", "queues,workerpools,deployments,pods", "-o", "wide"},
		{"get", "queues", "-o", "jsonpath={.items[*].status}"},
		{"get", "workerpools", "-o", "jsonpath={.items[*].status}"},
		{"events"},
	} {
		output, _ := kubectl(context.Background(), append([]string{"-n", o.ns}, args...)...).CombinedOutput()
		o.t.Logf("kubectl %s\n%s", strings.Join(args, " "), output)
	}
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// rollOut gives the pool another version.
func (o *office) rollOut(version int) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"version":"%d"}}`, version)
	must(o.t, cluster.Patch(o.t.Context(), o.pool(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// bound gives the pool another maximum, so that it shrinks or may grow.
func (o *office) bound(replicas int) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"autoscaling":{"maxReplicas":%d}}}`, replicas)
	must(o.t, cluster.Patch(o.t.Context(), o.pool(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// disturb rolls the pool out and changes its size, again and again, while jobs come.
func (o *office) disturb(each func(turn int)) (rollouts int) {
	o.t.Helper()
	pause := max(time.Duration(o.jobs/o.rate)*time.Second/8, 5*time.Second)
	for turn := 1; o.sending(); turn++ {
		o.rollOut(turn + 1)
		rollouts++
		o.bound(4 + rand.IntN(4))
		if each != nil {
			each(turn)
		}
		select {
		case <-time.After(pause):
		case <-o.t.Context().Done():
			o.t.Fatal(o.t.Context().Err())
		}
	}
	return rollouts
}

func nothingLost(t *testing.T) {
	o := open(t, office1)
	o.hire(nil)
	o.send()
	rollouts := o.disturb(nil)
	o.untilDone()
	verdict := o.verdict()
	if !verdict.EachDoneOnce() {
		t.Errorf("%+v", verdict)
	}
	if rollouts < 5 || verdict.Revisions < 5 {
		t.Errorf("%d rollouts, %d revisions have worked", rollouts, verdict.Revisions)
	}
	o.until("the pool to be at zero again", patience, func() bool {
		pool := o.pool()
		return pool.Status.Replicas == 0 && len(o.workers()) == 0
	})
}

// workers are the Pods of the pool.
func (o *office) workers() []corev1.Pod {
	o.t.Helper()
	var pods corev1.PodList
	must(o.t, cluster.List(o.t.Context(), &pods, client.InNamespace(o.ns)))
	var workers []corev1.Pod
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Name, "clerks-") {
			workers = append(workers, pod)
		}
	}
	return workers
}

func nothingLostByForce(t *testing.T) {
	o := open(t, office2)
	o.hire(nil)
	o.send()
	inFlight := 0
	o.disturb(func(turn int) {
		if turn%3 == 0 {
			o.kubectl("delete", "pod", "nats-0", "--grace-period=0", "--force")
			return
		}
		for _, pod := range o.workers() {
			if rand.IntN(2) == 0 && pod.Status.Phase == corev1.PodRunning {
				o.kubectl("delete", "pod", pod.Name, "--grace-period=0", "--force", "--ignore-not-found")
				inFlight += 10 // what a clerk can have
			}
		}
	})
	o.untilDone()
	verdict := o.verdict()
	if verdict.Done != verdict.Sent || len(verdict.Unexpected) > 0 {
		t.Errorf("%+v", verdict)
	}
	if verdict.Repeated > inFlight+60 { // and what all could have when the broker went
		t.Errorf("%d were done again, and no more than %d can have been in flight", verdict.Repeated, inFlight)
	}
}

// careless are workers of a plain Deployment that is rolled out in the middle.
func (o *office) careless(program string, args ...string) {
	o.t.Helper()
	labels := map[string]string{"app": "careless"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "careless", Namespace: o.ns}}
	deployment.Spec.Replicas = new(int32(4))
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	deployment.Spec.Template.Labels = labels
	deployment.Spec.Template.Spec = o.podSpec(program, args...)
	deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(0)) // and no time to finish
	deployment.Spec.Template.Spec.Containers[0].Env = append(deployment.Spec.Template.Spec.Containers[0].Env,
		corev1.EnvVar{Name: "YARDMASTER_CONFIG_FILE", Value: "/config/worker.yaml"},
		corev1.EnvVar{Name: "YARDMASTER_POD", Value: "careless"})
	o.configure(&deployment.Spec.Template.Spec)
	must(o.t, cluster.Create(o.t.Context(), deployment))
}

// configure gives a Pod what a WorkerPool gives to its own.
func (o *office) configure(pod *corev1.PodSpec) {
	o.t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "careless", Namespace: o.ns}, Data: map[string]string{
		"worker.yaml": "broker: {url: '" + o.url() + "'}\nconcurrency: 20\nqueues: [{name: orders, lease: 15s}]\n",
	}}
	must(o.t, client.IgnoreAlreadyExists(cluster.Create(o.t.Context(), config)))
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "careless"}},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/config"})
}

// control has careless workers do the jobs, and returns the verdict on them.
func control(t *testing.T, ns, program string, args ...string) verify.LedgerResult {
	o := open(t, ns)
	o.jobs, o.rate, o.takes = 800, 20, 3*time.Second // nobody can finish that in a moment
	o.careless(program, args...)
	o.send()
	for o.sending() {
		o.kubectl("rollout", "restart", "deployment/careless")
		o.kubectl("rollout", "status", "deployment/careless", "--timeout=90s")
	}
	o.untilDone()
	return o.verdict()
}

func controlWithoutDrain(t *testing.T) {
	if verdict := control(t, office3, "/worker"); verdict.EachDoneOnce() {
		t.Errorf("a Deployment without drain passes: %+v", verdict)
	}
}

func controlAcknowledgedFirst(t *testing.T) {
	if verdict := control(t, office4, "/careless", "nats://nats."+office4+":4222", "orders"); verdict.Done == verdict.Sent {
		t.Errorf("workers that acknowledge first lose nothing: %+v", verdict)
	}
}
