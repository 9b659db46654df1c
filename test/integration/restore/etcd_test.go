package restore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/poll"
)

// etcd is restored from a backup while the broker keeps its current state. The operator runs all the
// time.
func TestRestoredEtcd(t *testing.T) {
	env := newRestoreTest(t, "restore-etcd")
	env.makeSessionsRunFor("8s")
	operator := env.buildOperator()
	env.startOperator(operator)
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
	env.restartStoppedOperator(operator, "etcd was restored from a backup")

	env.wantWorkRestored(o)
	env.wantQueuesRestored(o, late)
	env.run("a WorkerPool has the workers of its spec at the time of the backup", func(*testing.T) {
		env.waitFor("one worker", o.pool, func() bool {
			return o.pool.Status.Desired == 1 && o.pool.Status.Replicas == 1 && o.pool.Status.ObservedGeneration == o.pool.Generation
		})
	})
	env.run("a Policy applies as it was at the time of the backup", func(*testing.T) {
		env.waitForRetryLimit(o.queue, policyRetryLimit)
	})
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

// lateObjects are created after the backup.
type lateObjects struct {
	sequence *v1alpha1.SequentialJob
	session  *v1alpha1.AgenticSession
	queue    *v1alpha1.Queue
}

// continueAfterBackup makes the changes that the restore loses.
func (env *restoreTest) continueAfterBackup(o *backupObjects) *lateObjects {
	env.t.Helper()
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

// writeMuch writes more than an API server writes when it starts, as in the time between a backup and
// a restore.
func (env *restoreTest) writeMuch() {
	env.t.Helper()
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

// wantWorkRestored checks what runs again.
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

// wantQueuesRestored checks that the messages are those on the broker.
func (env *restoreTest) wantQueuesRestored(o *backupObjects, late *lateObjects) {
	env.run("a Queue reports the messages that its broker has now", func(*testing.T) {
		env.waitForMessages(o.queue, 5)
	})
	env.run("a Queue that was deleted with Purge after the backup exists again, and is empty", func(*testing.T) {
		env.waitForMessages(o.purged, 0)
	})
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
		if err := env.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object)); !isNotFound(err) {
			t.Errorf("%T %s exists, or reading it failed: %v", object, object.GetName(), err)
		}
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
	t.Helper()
	before := sj.DeepCopy()
	env.waitForPhase(sj, v1alpha1.PhaseCompleted)
	for i := range sj.Status.Steps {
		was, is := &before.Status.Steps[i], &sj.Status.Steps[i]
		if again := !is.CompletionTime.Equal(was.CompletionTime); again != (is.Name != "a") {
			t.Errorf("step %s ran again: %t", is.Name, again)
		}
	}
}
