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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

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
