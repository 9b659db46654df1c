package restore

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

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
