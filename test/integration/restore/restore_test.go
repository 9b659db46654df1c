// Package restore tests what is lost and what runs again if etcd is restored from a backup, the previous version of the operator is installed
// again, or the CustomResourceDefinitions are deleted. It needs the KUBECONFIG of a local cluster, and no other operator may run there.
package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

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

// startOperator starts an operator, which runs until the end of the test.
func (env *restoreTest) startOperator() {
	env.t.Helper()
	binary, err := testenv.BuildOperator()
	env.require(err)
	operator, err := testenv.StartOperator(env.t.Context(), binary, env.Cluster.Cluster,
		"--namespaces", env.watched, "--report-namespaces", string(env.Environment), "--report-interval", "1s", "--queue-sweep", "2s")
	env.require(err)
	env.operator = operator
	env.t.Cleanup(operator.Stop)
}

// restartStoppedOperator waits until the operator stops by itself with this message in its log, and starts it again, as the kubelet does.
func (env *restoreTest) restartStoppedOperator(message string) {
	select {
	case <-env.operator.Exited():
	case <-time.After(10 * time.Minute):
		env.t.Fatal("the operator does not stop")
	}
	require.True(env.t, !env.operator.State().Success(), "the operator stopped without an error")
	log, err := os.ReadFile(env.operator.LogFile)
	env.require(err)
	require.True(env.t, bytes.Contains(log, []byte(message)), "the operator's log does not contain %q:\n%s", message, log)
	env.startOperator()
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
	stream, err := env.stream(queueName)
	env.require(err)
	assert.Equal(t, "messages in the queue "+queueName, want, stream.CachedInfo().State.Msgs)
}

// stream reads the stream of a queue on the broker.
func (env *restoreTest) stream(queueName string) (jetstream.Stream, error) {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queueName)
	env.require(err)
	defer p.CloseConnection()
	return p.QueueStream(env.t.Context())
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

const (
	runnerImage                     = "registry.example/runner:1"
	policyRetryLimit, ownRetryLimit = 9, 4  // the default that the Policy sets, and that without a Policy
	sessionCost                     = "0.5" // what each attempt of a session costs
)

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

// createObjects creates objects of all kinds, and waits until step b of a SequentialJob and a session run.
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

// newSequence returns a SequentialJob with the steps a, b and c. Each takes as long as the annotation says.
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
		return slices.ContainsFunc(sj.Status.Steps, func(s v1alpha1.StepStatus) bool {
			return s.Name == step && (s.Phase == v1alpha1.StepStarting || s.Phase == v1alpha1.StepRunning)
		})
	})
}

func (env *restoreTest) waitForRetryLimit(q *v1alpha1.Queue, want int32) {
	env.t.Helper()
	env.waitFor("the default of the Policy", q, func() bool { return q.Status.Effective != nil && *q.Status.Effective.Retry.Limit == want })
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

// etcd is restored from a backup while the broker keeps its current state. The operator runs all the time.
func TestRestoredEtcd(t *testing.T) {
	env := newRestoreTest(t, "restore-etcd")
	env.makeSessionsRunFor("8s")
	env.startOperator()
	o := env.createObjects()
	backup := filepath.Join(t.TempDir(), "etcd")
	env.require(env.PauseControlPlane(t.Context(), func(etcd string) error { return os.CopyFS(backup, os.DirFS(etcd)) }))
	late := env.continueAfterBackup(o)
	_, err := env.KillControlPlane(t.Context(), func(etcd string) error {
		if err := os.RemoveAll(etcd); err != nil {
			return err
		}
		return os.CopyFS(etcd, os.DirFS(backup))
	})
	env.require(err)
	env.require(env.RestartComponent("kwok")) // it simulates the kubelets, which restart in a restore
	env.restartStoppedOperator("etcd was restored from a backup")

	env.wantWorkRestored(o)
	env.wantQueuesRestored(o, late)
	env.run("a WorkerPool has the workers of its spec at the time of the backup", func(*testing.T) {
		env.waitFor("one worker", o.pool, func() bool {
			return o.pool.Status.Desired == 1 && o.pool.Status.Replicas == 1 && o.pool.Status.ObservedGeneration == o.pool.Generation
		})
	})
	env.run("a Policy applies as it was at the time of the backup", func(*testing.T) { env.waitForRetryLimit(o.queue, policyRetryLimit) })
	env.run("a SessionRunner is as it was at the time of the backup", func(*testing.T) {
		env.waitFor("the old image", o.runner, func() bool { return o.runner.Spec.Image == runnerImage })
	})
	env.run("a JobReport counts the Jobs that there are now", func(t *testing.T) { env.wantAllJobsReported(t) })
	env.run("objects that were created after the backup are lost, with their Jobs", func(t *testing.T) {
		env.wantLost(t, late.sequence, late.session)
		env.wantJobs(t, late.sequence, 0)
	})
	env.run("changes after the restore are reconciled", func(t *testing.T) { env.wantNewObjectsReconciled(t, "new") })
}

type lateObjects struct {
	sequence *v1alpha1.SequentialJob
	session  *v1alpha1.AgenticSession
	queue    *v1alpha1.Queue
}

// continueAfterBackup makes the changes that the restore loses.
func (env *restoreTest) continueAfterBackup(o *backupObjects) *lateObjects {
	ctx := env.t.Context()
	late := &lateObjects{sequence: env.newSequence("late", "100ms"), session: env.newSession("late"), queue: env.NewQueue("late")}
	for _, object := range []client.Object{late.sequence, late.session, late.queue} {
		env.require(env.Create(ctx, object))
	}
	env.waitForMessages(late.queue, 0)
	env.publish(late.queue, 1)
	env.publish(o.queue, 2)
	env.waitForMessages(o.queue, 5)
	env.deleteAndWait(o.purged)
	env.deleteAndWait(o.completed)
	env.patchSpec(o.pool, `{"replicas":3}`)
	env.patchSpec(o.policy, `{"defaults":{"retry":{"limit":3}}}`)
	env.patchSpec(o.runner, `{"image":"registry.example/runner:2"}`)
	env.waitFor("three workers", o.pool, func() bool { return o.pool.Status.Replicas == 3 })
	env.waitForRetryLimit(o.queue, 3)
	env.waitForPhase(o.running, v1alpha1.PhaseCompleted)
	env.waitForPhase(late.sequence, v1alpha1.PhaseCompleted)
	env.waitForCompletedSession(o.session)
	env.writeMuch()
	return late
}

// writeMuch writes more than an API server writes when it starts, as in the time between a backup and a restore.
func (env *restoreTest) writeMuch() {
	var writers errgroup.Group
	writers.SetLimit(harness.CreateConcurrency)
	for range 500 {
		writers.Go(func() error {
			written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: string(env.Environment), GenerateName: "written-"}}
			return env.Create(env.t.Context(), written)
		})
	}
	env.require(writers.Wait())
}

func (env *restoreTest) wantWorkRestored(o *backupObjects) {
	env.run("a SequentialJob runs the steps again that ended after the backup, and no others", func(t *testing.T) {
		env.wantLastStepsAgain(t, o.running)
	})
	env.run("a SequentialJob that was deleted after the backup exists again; completed steps do not run again", func(t *testing.T) {
		env.wantJobs(t, o.completed, len(o.completed.Spec.Containers))
	})
	env.run("a session that ran at the time of the backup runs again, and only the cost of this is recorded", func(t *testing.T) {
		firstEnd := o.session.Status.Attempts[0].CompletionTime
		env.waitForCompletedSession(o.session)
		if len(o.session.Status.Attempts) != 1 || o.session.Status.Attempts[0].CompletionTime.Equal(firstEnd) || *o.session.Status.TotalCostUSD != sessionCost {
			t.Errorf("it ended at %s before, and is %+v", firstEnd, o.session.Status)
		}
	})
}

func (env *restoreTest) wantQueuesRestored(o *backupObjects, late *lateObjects) {
	env.run("a Queue reports the messages that its broker has now", func(*testing.T) { env.waitForMessages(o.queue, 5) })
	env.run("a Queue that was deleted with Purge after the backup exists again, and is empty", func(*testing.T) { env.waitForMessages(o.purged, 0) })
	env.run("a Queue that was created after the backup is lost, and its messages stay on the broker", func(t *testing.T) {
		env.wantLost(t, late.queue)
		env.wantMessagesOnBroker(t, late.queue.Status.Name, 1)
	})
	env.run("the Queue that was lost continues with its messages if it is created again", func(*testing.T) {
		again := env.NewQueue(late.queue.Name)
		env.require(env.Create(env.t.Context(), again))
		env.waitForMessages(again, 1)
	})
}

func (env *restoreTest) wantLost(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		err := env.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
		require.True(t, isNotFound(err), "%T %s exists, or reading it failed: %v", object, object.GetName(), err)
	}
}

func (env *restoreTest) deleteAndWait(object client.Object) {
	env.t.Helper()
	env.require(env.Delete(env.t.Context(), object))
	env.waitUntilDeleted(object)
}

func (env *restoreTest) waitUntilDeleted(object client.Object) {
	env.t.Helper()
	poll.Until(env.t, fmt.Sprintf("the deletion of %T %s", object, object.GetName()), func() bool {
		return isNotFound(env.Get(env.t.Context(), client.ObjectKeyFromObject(object), object))
	})
}

// wantLastStepsAgain checks that a SequentialJob completes, and that step a did not run again.
func (env *restoreTest) wantLastStepsAgain(t *testing.T, sj *v1alpha1.SequentialJob) {
	before := sj.DeepCopy()
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	for i := range sj.Status.Steps {
		was, is := &before.Status.Steps[i], &sj.Status.Steps[i]
		again := !is.CompletionTime.Equal(was.CompletionTime)
		require.True(t, again == (is.Name != "a"), "step %s ran again: %t", is.Name, again)
	}
}

// Deleting the CustomResourceDefinitions deletes all objects of these kinds. The operator runs all the time.
func TestDeletedAndRecreatedCustomResourceDefinitions(t *testing.T) {
	env := newRestoreTest(t, "restore-crds")
	env.watched = "" // other tests may have left objects with finalizers in their namespaces
	env.startOperator()
	env.waitForGarbageCollector()
	o := env.createObjects()
	env.deleteCRDs()

	env.run("the Jobs, workers and workspaces are deleted", func(*testing.T) { env.waitForNoChildren() })
	env.run("queues with the deletion policy Retain keep their messages, those with Purge do not", func(t *testing.T) {
		env.wantMessagesOnBroker(t, o.queue.Status.Name, 3)
		env.wantMessagesOnBroker(t, o.unnamed.Status.Name, 2)
		_, err := env.stream(o.purged.Status.Name)
		require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	})
	env.connect()
	env.run("a Queue that is created again continues with its messages, and without the defaults of the deleted Policy", func(*testing.T) {
		env.recreateQueue(o.queue, 3)
		env.recreateQueue(o.unnamed, 2)
	})
	env.run("a new session waits for a SessionRunner", func(*testing.T) {
		waiting := env.newSession("waiting")
		env.require(env.Create(env.t.Context(), waiting))
		env.waitFor("a message", waiting, func() bool {
			ready := meta.FindStatusCondition(waiting.Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && strings.Contains(ready.Message, "SessionRunner")
		})
		env.createRunner()
		env.waitForCompletedSession(waiting)
	})
	env.run("new objects are reconciled without a restart of the operator", func(t *testing.T) {
		env.require(env.Create(t.Context(), env.newPool()))
		env.wantNewObjectsReconciled(t, "new")
	})
}

// waitForGarbageCollector waits until the garbage collector deletes the children of our kinds. It looks
// for new kinds only every 30 seconds, and misses deletions until then.
func (env *restoreTest) waitForGarbageCollector() {
	const reactionTime = 2 * time.Second
	poll.Until(env.t, "the garbage collector to delete children of our kinds", func() bool {
		owner := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: string(env.Environment), GenerateName: "owner-"}}
		env.require(env.Create(env.t.Context(), owner))
		child := &corev1.ConfigMap{ObjectMeta: env.ObjectMeta(owner.Name)}
		env.require(controllerutil.SetOwnerReference(owner, child, env.Scheme()))
		env.require(env.Create(env.t.Context(), child))
		env.require(env.Delete(env.t.Context(), owner))
		ctx, cancel := context.WithTimeout(env.t.Context(), reactionTime)
		defer cancel()
		return poll.UntilNil(ctx, func() error {
			if !isNotFound(env.Get(env.t.Context(), client.ObjectKeyFromObject(child), child)) {
				return errors.New("the child exists")
			}
			return nil
		}) == nil
	})
}

func (env *restoreTest) recreateQueue(old *v1alpha1.Queue, messages int64) {
	env.t.Helper()
	again := env.NewQueue(old.Name)
	again.Spec.Name = old.Spec.Name
	env.require(env.Create(env.t.Context(), again))
	env.waitForMessages(again, messages)
	env.waitForRetryLimit(again, ownRetryLimit)
}

func (env *restoreTest) deleteCRDs() {
	files, err := filepath.Glob("config/crd/bases/*.yaml")
	env.require(err)
	var crds []client.Object
	for _, file := range files {
		raw, err := os.ReadFile(file)
		env.require(err)
		crd := &unstructured.Unstructured{}
		env.require(yaml.Unmarshal(raw, crd))
		env.require(env.Delete(env.t.Context(), crd))
		crds = append(crds, crd)
	}
	for _, crd := range crds {
		env.waitUntilDeleted(crd)
	}
}

// waitForNoChildren waits until the objects that the deleted objects owned are gone.
func (env *restoreTest) waitForNoChildren() {
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
		if err := poll.UntilNil(env.t.Context(), func() error {
			err := env.List(env.t.Context(), list, client.InNamespace(string(env.Environment)))
			if err == nil && meta.LenList(list) > 0 {
				err = fmt.Errorf("these exist: %+v", list)
			}
			return err
		}); err != nil {
			env.t.Errorf("waiting until all are deleted: %v", err)
		}
	}
}
