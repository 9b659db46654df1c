// Package restore tests what is lost and what runs again if etcd is restored from a backup, the
// previous version of the operator is installed again, or the CustomResourceDefinitions are deleted.
// It needs the KUBECONFIG of a local cluster, and no other operator may run there.
package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	root = "../../.."
	// durationAnnotation is how long a simulated Pod runs, messageAnnotation what it reports.
	durationAnnotation = "sim.localcluster.dev/duration"
	messageAnnotation  = "sim.localcluster.dev/message"
)

func TestMain(m *testing.M) {
	testenv.Main(m, "make soak SOAK_PARTS=restore", func(context.Context, *testenv.Cluster) (func() error, error) { return testenv.NothingToEnd, nil })
}

// restoreTest is a namespace of a local cluster, and a broker.
type restoreTest struct {
	*harness.Cluster
	harness.Environment

	t      *testing.T
	broker string
	// watched is the operator's flag --namespaces.
	watched  string
	operator *testenv.Operator
}

func newRestoreTest(t *testing.T, namespace harness.Environment) *restoreTest {
	t.Helper()
	if os.Getenv("RESTORE") == "" {
		t.Skip("this test kills the control plane or deletes all objects of the cluster: use make soak SOAK_PARTS=restore")
	}
	t.Chdir(root)
	ctrl.SetLogger(logr.Discard())
	env := &restoreTest{Environment: namespace, watched: string(namespace), t: t, broker: "nats://" + natstest.Start(t).Address()}
	env.connect()
	env.Cluster.CreateNamespace(t, string(namespace))
	env.require(env.CreateNamespace(t.Context(), env.Cluster, env.broker))
	return env
}

// connect connects to the cluster and installs the CustomResourceDefinitions of this version.
func (env *restoreTest) connect() {
	env.t.Helper()
	cluster, err := harness.ConnectToCluster(os.Getenv("KUBECONFIG"))
	env.require(err)
	env.require(cluster.InstallCRDs(env.t.Context()))
	env.Cluster = cluster
}

func (env *restoreTest) buildOperator() string {
	env.t.Helper()
	binary, err := testenv.BuildOperator()
	env.require(err)
	return binary
}

// startOperator starts an operator, which runs until stopOperator or the end of the test.
func (env *restoreTest) startOperator(binary string) {
	env.t.Helper()
	operator, err := testenv.StartOperator(env.t.Context(), binary, env.Cluster.Cluster,
		"--namespaces", env.watched, "--report-namespaces", string(env.Environment), "--report-interval", "1s", "--queue-sweep", "2s")
	env.require(err)
	env.operator = operator
	env.t.Cleanup(env.stopOperator)
}

func (env *restoreTest) stopOperator() {
	if env.operator != nil {
		env.operator.Stop()
		env.operator = nil
	}
}

// restartStoppedOperator waits until the operator stops by itself with this message in its log, and
// starts it again, as the kubelet does.
func (env *restoreTest) restartStoppedOperator(binary, message string) {
	env.t.Helper()
	poll.Until(env.t, "the operator to stop", func() bool {
		select {
		case <-env.operator.Exited():
			return true
		default:
			return false
		}
	})
	require.True(env.t, !env.operator.State().Success(), "the operator stopped without an error")
	log, err := os.ReadFile(env.operator.LogFile)
	env.require(err)
	require.True(env.t, bytes.Contains(log, []byte(message)), "the operator's log does not contain %q:\n%s", message, log)
	env.startOperator(binary)
}

// run runs a subtest, which the methods of env then fail.
func (env *restoreTest) run(title string, check func(t *testing.T)) {
	parent := env.t
	parent.Run(title, func(t *testing.T) {
		env.t = t
		defer func() { env.t = parent }()
		check(t)
	})
}

func (env *restoreTest) require(err error) {
	env.t.Helper()
	require.NoError(env.t, err)
}

// waitFor waits until the condition is true for the object, which it reads each time.
func (env *restoreTest) waitFor(what string, object client.Object, condition func() bool) {
	env.t.Helper()
	if err := poll.UntilNil(env.t.Context(), func() error {
		if err := env.Get(env.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !condition() {
			return fmt.Errorf("it is %+v", object)
		}
		return nil
	}); err != nil {
		env.t.Fatalf("waiting for %s of %T %s: %v", what, object, object.GetName(), err)
	}
}

// waitForMessages waits until a Queue is ready and reports this number of messages.
func (env *restoreTest) waitForMessages(q *v1alpha1.Queue, messages int64) {
	env.t.Helper()
	env.waitFor("messages", q, func() bool {
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady) && q.Status.Backlog != nil && *q.Status.Backlog == messages
	})
}

func (env *restoreTest) publish(queue *v1alpha1.Queue, messages int) {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	env.require(p.PublishBurst(env.t.Context(), messages, time.Minute))
}

func (env *restoreTest) wantMessagesOnBroker(t *testing.T, queueName string, want uint64) {
	t.Helper()
	p, err := harness.ConnectProducer(env.broker, queueName)
	env.require(err)
	defer p.CloseConnection()
	stream, err := p.QueueStream(t.Context())
	env.require(err)
	assert.Equal(t, "messages in the queue "+queueName, want, stream.CachedInfo().State.Msgs)
}

func (env *restoreTest) hasStream(queue *v1alpha1.Queue) bool {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	_, err = p.QueueStream(env.t.Context())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		env.require(err)
	}
	return err == nil
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

const (
	runnerImage = "registry.example/runner:1"
	// policyRetryLimit is the default that the Policy sets, and ownRetryLimit that without a Policy.
	policyRetryLimit, ownRetryLimit = 9, 4
	// sessionCost is what each attempt of a session costs.
	sessionCost = "0.5"
)

// backupObjects are the objects that exist at the time of the backup.
type backupObjects struct {
	running, completed *v1alpha1.SequentialJob
	session            *v1alpha1.AgenticSession
	runner             *v1alpha1.SessionRunner
	queue, purged      *v1alpha1.Queue
	// unnamed is a Queue without spec.name.
	unnamed *v1alpha1.Queue
	pool    *v1alpha1.WorkerPool
	policy  *v1alpha1.Policy
}

// createObjects creates objects of all kinds, and waits until step b of a SequentialJob and a session
// run.
func (env *restoreTest) createObjects() *backupObjects {
	env.t.Helper()
	o := &backupObjects{
		running: env.newSequence("running", "5s"), completed: env.newSequence("completed", "100ms"),
		session: env.newSession("running"), runner: env.createRunner(),
		queue: env.NewQueue("kept"), purged: env.NewQueue("purged"), unnamed: env.NewQueue("unnamed"),
		pool: env.newPool(), policy: &v1alpha1.Policy{ObjectMeta: env.ObjectMeta("all")},
	}
	o.session.Spec.Workspace = &v1alpha1.WorkspaceClaim{Size: resource.NewQuantity(1<<20, resource.BinarySI)}
	o.purged.Spec.DeletionPolicy, o.unnamed.Spec.Name = v1alpha1.DeletionPurge, ""
	o.policy.Spec.Defaults = &v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Limit: new(int32(policyRetryLimit))}}}
	for _, object := range []client.Object{o.completed, o.queue, o.purged, o.unnamed, o.pool, o.policy} {
		env.require(env.Create(env.t.Context(), object))
	}
	env.waitForPhase(o.completed, v1alpha1.PhaseCompleted)
	for queue, messages := range map[*v1alpha1.Queue]int{o.queue: 3, o.purged: 4, o.unnamed: 2} {
		env.waitForMessages(queue, 0)
		env.publish(queue, messages)
		env.waitForMessages(queue, int64(messages))
	}
	env.waitForRetryLimit(o.queue, policyRetryLimit)
	env.waitFor("a worker", o.pool, func() bool { return o.pool.Status.Replicas == 1 })
	env.require(env.Create(env.t.Context(), o.running))
	env.waitForActiveStep(o.running, "b")
	env.require(env.Create(env.t.Context(), o.session))
	env.waitFor("the session to run", o.session, func() bool { return o.session.Status.Phase == v1alpha1.SessionRunning })
	return o
}

func (env *restoreTest) createRunner() *v1alpha1.SessionRunner {
	env.t.Helper()
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta("default")}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = runnerImage, new(int64(65532))
	env.require(env.Create(env.t.Context(), runner))
	return runner
}

func (env *restoreTest) newSession(name string) *v1alpha1.AgenticSession {
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt = "do it"
	return session
}

func (env *restoreTest) newPool() *v1alpha1.WorkerPool {
	pool := env.NewWorkerPool("kept")
	pool.Spec.Autoscaling, pool.Spec.Replicas = nil, new(int32(1))
	return pool
}

// newSequence returns a SequentialJob with the steps a, b and c. Each takes as long as the
// annotation says.
func (env *restoreTest) newSequence(name, duration string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{durationAnnotation: duration}}}}
	for _, step := range []string{"a", "b", "c"} {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: step, Container: corev1.Container{Name: step, Image: "registry.example/tool:1", Command: []string{"run"}}})
	}
	return sj
}

func (env *restoreTest) waitForPhase(sj *v1alpha1.SequentialJob, phase v1alpha1.SequentialJobPhase) {
	env.t.Helper()
	env.waitFor("phase "+string(phase), sj, func() bool { return sj.Status.Phase == phase })
}

func (env *restoreTest) waitForCompletedSession(session *v1alpha1.AgenticSession) {
	env.t.Helper()
	env.waitFor("the session to complete", session, func() bool { return session.Status.Phase == v1alpha1.SessionCompleted })
}

func (env *restoreTest) waitForActiveStep(sj *v1alpha1.SequentialJob, step string) {
	env.t.Helper()
	env.waitFor("step "+step, sj, func() bool {
		for i := range sj.Status.Steps {
			if s := &sj.Status.Steps[i]; s.Name == step && (s.Phase == v1alpha1.StepStarting || s.Phase == v1alpha1.StepRunning) {
				return true
			}
		}
		return false
	})
}

// waitForRetryLimit waits until this default applies to the Queue.
func (env *restoreTest) waitForRetryLimit(q *v1alpha1.Queue, want int32) {
	env.t.Helper()
	env.waitFor("the default of the Policy", q, func() bool {
		return q.Status.Effective != nil && *q.Status.Effective.Retry.Limit == want
	})
}

// wantJobs checks that a SequentialJob has this number of Jobs: one for each step that ran.
func (env *restoreTest) wantJobs(t *testing.T, sj *v1alpha1.SequentialJob, want int) {
	t.Helper()
	if want > 0 {
		env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	}
	var jobs batchv1.JobList
	env.require(env.List(t.Context(), &jobs, client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(sj.UID)}))
	require.True(t, len(jobs.Items) == want, "%d Jobs of %s, want %d", len(jobs.Items), sj.Name, want)
}

func (env *restoreTest) wantAllJobsReported(t *testing.T) {
	t.Helper()
	report := &v1alpha1.JobReport{ObjectMeta: env.ObjectMeta("jobs")}
	env.waitFor("the number of Jobs", report, func() bool {
		var jobs batchv1.JobList
		err := env.List(t.Context(), &jobs, client.InNamespace(string(env.Environment)))
		return err == nil && len(jobs.Items) > 0 && int(report.Status.Summary.Total) == len(jobs.Items)
	})
}

// wantNewObjectsReconciled checks that the operator reconciles objects that are created or changed
// now.
func (env *restoreTest) wantNewObjectsReconciled(t *testing.T, name string) {
	t.Helper()
	sj, queue, session := env.newSequence(name, "100ms"), env.NewQueue(name), env.newSession(name)
	for _, object := range []client.Object{sj, queue, session} {
		env.require(env.Create(t.Context(), object))
	}
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	env.waitForMessages(queue, 0)
	env.waitForCompletedSession(session)
	pool := env.NewWorkerPool("kept")
	env.patchSpec(pool, `{"replicas":2}`)
	env.waitFor("two workers", pool, func() bool { return pool.Status.Replicas == 2 })
	env.wantAllJobsReported(t)
}

func (env *restoreTest) patchSpec(object client.Object, spec string) {
	env.t.Helper()
	env.require(env.Patch(env.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))))
}

// makeSessionsRunFor makes simulated nodes run the Pods of sessions for this time, and report their cost.
// Users cannot add annotations to these Pods.
func (env *restoreTest) makeSessionsRunFor(duration string) {
	env.t.Helper()
	expression := `Object{metadata: Object.metadata{annotations: {"` + durationAnnotation + `": "` + duration + `", "` + messageAnnotation +
		`": "{\"costUSD\":` + sessionCost + `}"}}}`
	for _, object := range testenv.Decode(env.t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchExpressions: [{key: %[2]s, operator: Exists}]}
    resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: %[3]q}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, env.Environment, agenticsession.LabelSession, expression)) {
		env.require(env.Create(env.t.Context(), object))
		env.t.Cleanup(func() { _ = env.Delete(context.Background(), object) })
	}
	poll.Until(env.t, "the MutatingAdmissionPolicy to apply", func() bool {
		pod := &corev1.Pod{ObjectMeta: env.ObjectMeta("dry-run")}
		pod.Labels = map[string]string{agenticsession.LabelSession: "x"}
		pod.Spec.Containers = []corev1.Container{{Name: "only", Image: "registry.example/tool:1"}}
		err := env.Create(env.t.Context(), pod, client.DryRunAll)
		return err == nil && pod.Annotations[durationAnnotation] != ""
	})
}
