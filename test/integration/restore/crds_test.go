package restore

import (
	"os"
	"path/filepath"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// Deleting the CustomResourceDefinitions deletes all objects of these kinds. The operator runs all the
// time.
func TestDeletedAndRecreatedCustomResourceDefinitions(t *testing.T) {
	env := newTestEnv(t, "restore-crds")
	env.watched = "" // other tests may have left objects with finalizers in their namespaces
	env.startOperator(env.buildOperator())
	o := env.createObjects()
	env.deleteCRDs()

	t.Run("the Jobs of SequentialJobs and sessions are deleted", func(t *testing.T) {
		env.wantNoJobs(t)
	})
	t.Run("queues with the deletion policy Retain keep their messages, those with Purge do not", func(t *testing.T) {
		if got := env.messagesOnBroker(o.queue); got != 3 {
			t.Errorf("%d messages of a retained queue, want 3", got)
		}
		if env.hasStream(o.purged) {
			t.Error("the purged queue exists")
		}
	})
	env.connect()
	env.createRunner()
	t.Run("a Queue that is created again continues with its messages", func(*testing.T) {
		again := env.NewQueue(o.queue.Name)
		env.require(env.Create(t.Context(), again))
		env.waitForMessages(again, 3)
	})
	t.Run("new objects are reconciled without a restart of the operator", func(t *testing.T) {
		pool := env.NewWorkerPool("kept")
		pool.Spec.Autoscaling, pool.Spec.Replicas = nil, new(int32(1))
		env.require(env.Create(t.Context(), pool))
		env.wantNewObjectsReconciled(t, "new")
	})
}

// deleteCRDs deletes the CustomResourceDefinitions and waits until they are gone.
func (env *testEnv) deleteCRDs() {
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
		env.require(harness.PollUntil(env.t.Context(), waitTimeout, func() (bool, error) {
			return isNotFound(env.Get(env.t.Context(), client.ObjectKeyFromObject(crd), crd)), nil
		}))
	}
}

func (env *testEnv) wantNoJobs(t *testing.T) {
	t.Helper()
	var jobs batchv1.JobList
	err := harness.PollUntil(t.Context(), waitTimeout, func() (bool, error) {
		err := env.List(t.Context(), &jobs, client.InNamespace(string(env.Environment)))
		return err == nil && len(jobs.Items) == 0, err
	})
	if err != nil {
		t.Errorf("%d Jobs are left: %v", len(jobs.Items), err)
	}
}
