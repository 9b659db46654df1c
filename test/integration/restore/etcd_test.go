package restore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
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

// Deleting the CustomResourceDefinitions deletes all objects of these kinds. The operator runs all the
// time.
func TestDeletedAndRecreatedCustomResourceDefinitions(t *testing.T) {
	env := newRestoreTest(t, "restore-crds")
	env.watched = "" // other tests may have left objects with finalizers in their namespaces
	env.startOperator(env.buildOperator())
	env.waitForGarbageCollector()
	o := env.createObjects()
	env.deleteCRDs()

	env.run("the Jobs, workers and workspaces are deleted", func(*testing.T) { env.waitForNoChildren() })
	env.run("queues with the deletion policy Retain keep their messages, those with Purge do not", func(t *testing.T) {
		env.wantMessagesOnBroker(t, o.queue.Status.Name, 3)
		env.wantMessagesOnBroker(t, o.unnamed.Status.Name, 2)
		require.True(t, !env.hasStream(o.purged), "the purged queue exists")
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
	env.t.Helper()
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
	env.t.Helper()
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
	env.t.Helper()
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
