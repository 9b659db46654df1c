package restore

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// baseline is the version that downgrades end at: see test/upgrade.
const baseline = "v0.1.0"

// The previous version, with its CustomResourceDefinitions, is installed over this one, and this one
// again over the previous.
func TestDowngradeToThePreviousVersion(t *testing.T) {
	env := newRestoreTest(t, "restore-downgrade")
	env.makeSessionsRunFor("8s")
	current, previous := env.buildOperator(), env.buildBaseline()
	env.startOperator(current)
	o := env.createObjects()
	workers, unnamed := env.workers(), o.unnamed.Status.Name

	env.stopOperator()
	env.installBaselineCRDs()
	env.startOperator(previous)
	env.run("the previous version continues what this version started", func(t *testing.T) { env.wantContinued(t, o, workers) })
	env.run("a Queue with a name continues with its messages under the previous version", func(*testing.T) {
		env.publish(o.queue, 1)
		env.waitForMessages(o.queue, 4)
	})
	env.run("a Queue without a name is empty under the previous version, and its messages stay on the broker", func(t *testing.T) {
		env.waitForMessages(o.unnamed, 0)
		env.wantMessagesOnBroker(t, unnamed, 2)
	})
	env.run("the previous version reconciles new objects", func(t *testing.T) { env.wantNewObjectsReconciled(t, "downgraded") })

	env.stopOperator()
	env.connect()
	env.startOperator(current)
	env.run("this version continues what the previous version started", func(t *testing.T) { env.wantContinued(t, o, workers) })
	env.run("all Queues continue with the messages that they had under the previous version", func(*testing.T) {
		env.publish(o.unnamed, 1)
		env.waitForMessages(o.unnamed, 1)
		env.waitForMessages(o.queue, 4)
	})
	env.run("a Queue without a name that is deleted and created again has its messages of before the downgrade", func(*testing.T) {
		env.deleteAndWait(o.unnamed)
		again := env.NewQueue(o.unnamed.Name)
		again.Spec.Name = ""
		env.require(env.Create(env.t.Context(), again))
		env.waitForMessages(again, 2)
	})
	env.run("this version reconciles new objects", func(t *testing.T) { env.wantNewObjectsReconciled(t, "upgraded") })
}

// workers returns the UIDs of the pool's Pods.
func (env *restoreTest) workers() []types.UID {
	env.t.Helper()
	var pods corev1.PodList
	env.require(env.List(env.t.Context(), &pods, client.InNamespace(string(env.Environment)), client.HasLabels{workerpool.LabelWorkerPool}))
	uids := make([]types.UID, len(pods.Items))
	for i := range pods.Items {
		uids[i] = pods.Items[i].UID
	}
	return uids
}

// wantContinued checks that nothing ran again or was lost.
func (env *restoreTest) wantContinued(t *testing.T, o *backupObjects, workers []types.UID) {
	t.Helper()
	env.wantJobs(t, o.completed, len(o.completed.Spec.Containers))
	env.wantJobs(t, o.running, len(o.running.Spec.Containers))
	env.waitForCompletedSession(o.session)
	if len(o.session.Status.Runs) != 1 || *o.session.Status.TotalCostUSD != sessionCost {
		t.Errorf("the session has not completed in one attempt: %+v", o.session.Status)
	}
	env.waitFor("the pool to be ready", o.pool, func() bool {
		return meta.IsStatusConditionTrue(o.pool.Status.Conditions, v1alpha1.ConditionReady)
	})
	if now := env.workers(); slices.ContainsFunc(workers, func(uid types.UID) bool { return !slices.Contains(now, uid) }) {
		t.Errorf("the workers %v were replaced: %v", workers, now)
	}
	env.waitFor("the policy to be ready", o.policy, func() bool {
		return meta.IsStatusConditionTrue(o.policy.Status.Conditions, v1alpha1.ConditionReady)
	})
	env.waitForMaxAttempts(o.queue, policyMaxAttempts)
	env.wantAllJobsReported(t)
}

// buildBaseline builds the operator of the previous version from its commit.
func (env *restoreTest) buildBaseline() string {
	env.t.Helper()
	binary := filepath.Join(env.t.TempDir(), "yardmaster-"+baseline)
	output, err := exec.CommandContext(env.t.Context(), "hack/baseline-binary", baseline, binary).CombinedOutput()
	if err != nil {
		env.t.Fatalf("%v\n%s", err, output)
	}
	return binary
}

// installBaselineCRDs does what kubectl apply --server-side does with those of the previous version.
func (env *restoreTest) installBaselineCRDs() {
	env.t.Helper()
	commit, err := os.ReadFile(filepath.Join("test", "upgrade", baseline, "commit"))
	env.require(err)
	revision := strings.TrimSpace(string(commit))
	files, err := exec.CommandContext(env.t.Context(), "git", "ls-tree", "-r", "--name-only", revision, "config/crd/bases").Output()
	env.require(err)
	for file := range strings.FieldsSeq(string(files)) {
		manifest, err := exec.CommandContext(env.t.Context(), "git", "show", revision+":"+file).Output()
		env.require(err)
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
		for {
			crd := &unstructured.Unstructured{}
			err := documents.Decode(crd)
			if errors.Is(err, io.EOF) {
				break
			}
			env.require(err)
			env.require(env.Apply(env.t.Context(), client.ApplyConfigurationFromUnstructured(crd), testenv.FieldOwner, client.ForceOwnership))
		}
	}
}
