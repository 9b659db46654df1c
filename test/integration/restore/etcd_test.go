package restore

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// etcd is restored from a backup while the broker keeps its current state. The operator runs all the
// time.
func TestRestoredEtcd(t *testing.T) {
	env := newTestEnv(t, "restore-etcd")
	env.makeSessionsRunFor("8s")
	env.startOperator(env.buildOperator())
	o := env.createObjects()
	backup := filepath.Join(t.TempDir(), "etcd")
	_, err := env.KillControlPlane(t.Context(), func(etcd string) error { return os.CopyFS(backup, os.DirFS(etcd)) })
	env.require(err)
	env.continueAfterBackup(o)

	_, err = env.KillControlPlane(t.Context(), func(etcd string) error {
		if err := os.RemoveAll(etcd); err != nil {
			return err
		}
		return os.CopyFS(etcd, os.DirFS(backup))
	})
	env.require(err)

	t.Run("a SequentialJob runs the steps again that ended after the backup, and no others", func(t *testing.T) {
		env.wantLastStepsAgain(t, o.running)
	})
	t.Run("a SequentialJob that had completed before the backup does not run again", func(t *testing.T) {
		env.wantSameJobs(t, o.completed)
	})
	t.Run("a session that ran at the time of the backup runs again", func(*testing.T) {
		env.eventually("the session to complete again", o.session, func() bool { return o.session.Status.Phase == v1alpha1.SessionCompleted })
	})
	t.Run("a Queue reports the messages that its broker has now", func(*testing.T) {
		env.waitForMessages(o.queue, 5)
	})
	t.Run("a Queue that was deleted with Purge after the backup exists again, and is empty", func(*testing.T) {
		env.waitForMessages(o.purged, 0)
	})
	t.Run("a Queue that was created after the backup is lost, and its messages stay on the broker", func(t *testing.T) {
		if err := env.Get(t.Context(), client.ObjectKeyFromObject(o.late), &v1alpha1.Queue{}); !isNotFound(err) {
			t.Errorf("the Queue exists, or reading it failed: %v", err)
		}
		if got := env.messagesOnBroker(o.late); got != 1 {
			t.Errorf("%d messages, want 1", got)
		}
	})
	t.Run("the Queue that was lost continues with its messages if it is created again", func(*testing.T) {
		again := env.NewQueue(o.late.Name)
		env.require(env.Create(t.Context(), again))
		env.waitForMessages(again, 1)
	})
	t.Run("a WorkerPool has the workers of its spec at the time of the backup", func(*testing.T) {
		env.eventually("one worker", o.pool, func() bool {
			return o.pool.Status.Desired == 1 && o.pool.Status.Replicas == 1 && o.pool.Status.ObservedGeneration == o.pool.Generation
		})
	})
	t.Run("a Policy applies as it was at the time of the backup", func(*testing.T) {
		env.eventually("the old precedence", o.policy, func() bool {
			return o.policy.Spec.Precedence == 0 && o.policy.Status.Queues == 2 && meta.IsStatusConditionTrue(o.policy.Status.Conditions, v1alpha1.ConditionReady)
		})
	})
	t.Run("changes after the restore are reconciled", func(t *testing.T) {
		env.wantNewObjectsReconciled(t, "new")
	})
}

// backupObjects are the objects that exist at the time of the backup, and the Queue late, which is
// created after it.
type backupObjects struct {
	running, completed  *v1alpha1.SequentialJob
	session             *v1alpha1.AgenticSession
	queue, purged, late *v1alpha1.Queue
	pool                *v1alpha1.WorkerPool
	policy              *v1alpha1.Policy
}

// createObjects creates objects of all kinds, and waits until step b of a SequentialJob and a session
// run.
func (env *testEnv) createObjects() *backupObjects {
	env.t.Helper()
	o := &backupObjects{
		running: env.newSequence("running", "8s"), completed: env.newSequence("completed", "100ms"),
		session: &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta("running")},
		queue:   env.NewQueue("kept"), purged: env.NewQueue("purged"), late: env.NewQueue("late"),
		pool: env.NewWorkerPool("kept"), policy: &v1alpha1.Policy{ObjectMeta: env.ObjectMeta("all")},
	}
	o.session.Spec.Prompt = "do it"
	o.purged.Spec.DeletionPolicy = v1alpha1.DeletionPurge
	o.pool.Spec.Autoscaling, o.pool.Spec.Replicas = nil, new(int32(1))
	for _, object := range []client.Object{o.completed, o.queue, o.purged, o.pool, o.policy} {
		env.require(env.Create(env.t.Context(), object))
	}
	env.waitForPhase(o.completed, v1alpha1.PhaseCompleted)
	env.waitForMessages(o.queue, 0)
	env.publish(o.queue, 3)
	env.waitForMessages(o.queue, 3)
	env.waitForMessages(o.purged, 0)
	env.publish(o.purged, 4)
	env.waitForMessages(o.purged, 4)
	env.eventually("a worker", o.pool, func() bool { return o.pool.Status.Replicas == 1 })
	env.require(env.Create(env.t.Context(), o.running))
	env.waitForActiveStep(o.running, "b")
	env.require(env.Create(env.t.Context(), o.session))
	env.eventually("the session to run", o.session, func() bool { return o.session.Status.Phase == v1alpha1.SessionRunning })
	return o
}

// continueAfterBackup makes the changes that the restore loses.
func (env *testEnv) continueAfterBackup(o *backupObjects) {
	env.t.Helper()
	ctx := env.t.Context()
	env.require(env.Create(ctx, o.late))
	env.waitForMessages(o.late, 0)
	env.publish(o.late, 1)
	env.publish(o.queue, 2)
	env.waitForMessages(o.queue, 5)
	env.require(env.Delete(ctx, o.purged))
	env.require(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		return isNotFound(env.Get(ctx, client.ObjectKeyFromObject(o.purged), &v1alpha1.Queue{})), nil
	}))
	env.require(env.Patch(ctx, o.pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))))
	env.require(env.Patch(ctx, o.policy, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"precedence":7}}`))))
	env.eventually("three workers", o.pool, func() bool { return o.pool.Status.Replicas == 3 })
	env.waitForPhase(o.running, v1alpha1.PhaseCompleted)
	env.eventually("the session to complete", o.session, func() bool { return o.session.Status.Phase == v1alpha1.SessionCompleted })
}

// wantLastStepsAgain checks that a SequentialJob completes, and that step a did not run again.
func (env *testEnv) wantLastStepsAgain(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	before := sj.DeepCopy()
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	for i := range sj.Status.Steps {
		was, is := &before.Status.Steps[i], &sj.Status.Steps[i]
		if again := !is.FinishTime.Equal(was.FinishTime); again != (is.Name != "a") {
			t.Errorf("step %s ran again: %t", is.Name, again)
		}
	}
}

// wantSameJobs checks that a SequentialJob has one Job for each step.
func (env *testEnv) wantSameJobs(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	var jobs batchv1.JobList
	env.require(env.List(t.Context(), &jobs, client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(sj.UID)}))
	if len(jobs.Items) != len(sj.Spec.Containers) {
		t.Errorf("%d Jobs, want %d", len(jobs.Items), len(sj.Spec.Containers))
	}
}

// wantNewObjectsReconciled checks that the operator reconciles objects that are created or changed
// now.
func (env *testEnv) wantNewObjectsReconciled(t *testing.T, name string) {
	t.Helper()
	sj, queue := env.newSequence(name, "100ms"), env.NewQueue(name)
	session := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(name)}
	session.Spec.Prompt = "do it"
	for _, object := range []client.Object{sj, queue, session} {
		env.require(env.Create(t.Context(), object))
	}
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	env.waitForMessages(queue, 0)
	env.eventually("the session to complete", session, func() bool { return session.Status.Phase == v1alpha1.SessionCompleted })
	pool := env.NewWorkerPool("kept")
	env.require(env.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))))
	env.eventually("two workers", pool, func() bool { return pool.Status.Replicas == 2 })
	report := &v1alpha1.JobReport{ObjectMeta: env.ObjectMeta("jobs")}
	env.eventually("a JobReport", report, func() bool {
		return meta.IsStatusConditionTrue(report.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// makeSessionsRunFor makes simulated nodes run the Pods of sessions for this time. Users cannot add
// the annotation to these Pods.
func (env *testEnv) makeSessionsRunFor(duration string) {
	env.t.Helper()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: string(env.Environment)}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: session.LabelSession, Operator: metav1.LabelSelectorOpExists}}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	policy.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	policy.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{annotations: {"` + durationAnnotation + `": "` + duration + `"}}}`,
		},
	}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: string(env.Environment)}}
	binding.Spec.PolicyName = policy.Name
	for _, object := range []client.Object{policy, binding} {
		env.require(env.Create(env.t.Context(), object))
		env.t.Cleanup(func() { _ = env.Delete(context.Background(), object) })
	}
	env.require(harness.PollUntil(env.t.Context(), waitTimeout, func() (bool, error) {
		pod := &corev1.Pod{ObjectMeta: env.ObjectMeta("dry-run")}
		pod.Labels = map[string]string{session.LabelSession: "x"}
		pod.Spec.Containers = []corev1.Container{{Name: "only", Image: "registry.example/tool:1"}}
		err := env.Create(env.t.Context(), pod, client.DryRunAll)
		return err == nil && pod.Annotations[durationAnnotation] != "", nil
	}))
}
