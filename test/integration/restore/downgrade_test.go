package restore

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// baseline is the version that downgrades end at: see test/upgrade.
const baseline = "v0.1.0"

// The previous version, with its CustomResourceDefinitions, is installed over this one, and this one
// again over the previous.
func TestDowngradeToThePreviousVersion(t *testing.T) {
	env := newTestEnv(t, "restore-downgrade")
	env.makeSessionsRunFor("15s")
	current, previous := env.buildOperator(), env.buildBaseline()
	env.startOperator(current)
	o := env.createObjects()
	created := o.queue.DeepCopy()
	env.stopOperator()
	env.installBaselineCRDs()
	env.startOperator(previous)
	t.Run("the previous version continues what this version started", func(t *testing.T) { env.wantContinued(t, o) })
	t.Run("a Queue of this version is empty under the previous one, and its messages stay on the broker", func(t *testing.T) {
		env.waitForMessages(o.queue, 0)
		env.wantMessagesOnBroker(t, created, 3)
	})
	t.Run("the previous version reconciles new objects", func(t *testing.T) { env.wantNewObjectsReconciled(t, "downgraded") })
	env.stopOperator()
	env.connect()
	env.startOperator(current)
	t.Run("this version continues what the previous version started", func(t *testing.T) { env.wantContinued(t, o) })
	t.Run("the messages of a Queue of this version are still on the broker", func(t *testing.T) { env.wantMessagesOnBroker(t, created, 3) })
	t.Run("this version reconciles new objects", func(t *testing.T) { env.wantNewObjectsReconciled(t, "upgraded") })
}

// wantContinued checks that nothing ran again or was lost.
func (env *testEnv) wantContinued(t *testing.T, o *backupObjects) {
	t.Helper()
	env.wantSameJobs(t, o.completed)
	env.wantSameJobs(t, o.running)
	env.eventually("the session to complete", o.session, func() bool { return o.session.Status.Phase == v1alpha1.SessionCompleted })
	if o.session.Status.Run != 1 {
		t.Errorf("the session is in run %d, want 1", o.session.Status.Run)
	}
	env.eventually("its worker", o.pool, func() bool { return o.pool.Status.Replicas > 0 })
	env.eventually("the policy to be ready", o.policy, func() bool {
		return meta.IsStatusConditionTrue(o.policy.Status.Conditions, v1alpha1.ConditionReady)
	})
}

func (env *testEnv) wantMessagesOnBroker(t *testing.T, q *v1alpha1.Queue, want uint64) {
	t.Helper()
	if got := env.messagesOnBroker(q); got != want {
		t.Errorf("%d messages in the queue %s, want %d", got, q.Status.Name, want)
	}
}

// buildBaseline builds the operator of the previous version from its commit.
func (env *testEnv) buildBaseline() string {
	env.t.Helper()
	binary := filepath.Join(env.t.TempDir(), "yardmaster-"+baseline)
	output, err := exec.CommandContext(env.t.Context(), "hack/baseline-binary", baseline, binary).CombinedOutput()
	if err != nil {
		env.t.Fatalf("%v\n%s", err, output)
	}
	return binary
}

// installBaselineCRDs does what kubectl apply --server-side does with those of the previous version.
func (env *testEnv) installBaselineCRDs() {
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
			env.require(env.Apply(env.t.Context(), client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("bench"), client.ForceOwnership))
		}
	}
}
