//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The release that upgrades start from: see test/upgrade.
const (
	baselineManifest = repositoryRoot + "/test/upgrade/v0.1.0/install.yaml.gz"
	baselineImage    = "yardmaster:v0.1.0"
	baselineWorker   = "example-worker:v0.1.0"
)

func testUpgrade(t *testing.T) {
	requireNoError(t, undeployOperator(t.Context(), exclusiveNamespaces))
	applyManifest(t, baselineManifest)
	requireNoError(t, waitForOperator(t.Context()))
	wantOperatorImage(t, baselineImage)

	s := createSequence(t, testbuilder.SequentialJob("upgraded", "").Step("long", untilReleased()).Step("next", shellScript("true")).Obj())
	pod := s.waitForRunningPod("long")
	env := newQueueEnv(t, watchedNamespace)
	env.createQueueOfBaseline()
	steady := env.startPoolsOfBaseline()
	requireNoError(t, deployOperator(t.Context(), exclusiveNamespaces))
	requireNoError(t, waitForOperator(t.Context()))
	wantOperatorImage(t, operatorImage())
	for _, ns := range []string{watchedNamespace, deletedNamespace} {
		if objectExists(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: operatorName, Namespace: ns}}) {
			t.Errorf("the upgrade left the permissions of all controllers in %s", ns)
		}
	}
	if now := s.waitForRunningPod("long"); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fatal("the upgrade interrupted the running step")
	}
	s.releaseStep("long")
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
	env.wantQueueContinues()
	env.wantPoolsContinue(steady)
	env.runKubectl("delete", "queue", "mail", "orders")
}

// startPoolsOfBaseline starts two WorkerPools with workers of the baseline, and sends them jobs until after the
// upgrade. The workers of the pool steady have a readiness probe of their own, as those of all pools have since.
func (env *queueEnv) startPoolsOfBaseline() (steady *corev1.Pod) {
	env.t.Helper()
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		pool.Spec.Image, pool.Spec.Template.Spec.Containers[0].Image = baselineWorker, baselineWorker
	})
	env.createPool(func(pool *v1alpha1.WorkerPool) {
		pool.Name = "steady"
		setFixedReplicas(pool, 1, 5)
		container := &pool.Spec.Template.Spec.Containers[0]
		pool.Spec.Image, container.Image = baselineWorker, baselineWorker
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8081)},
		}}
	})
	env.sentBatches = nil // nobody handles the messages of the other queue
	env.sendBatch(batchDuringUpgrade)
	env.waitUntilInFlight(15)
	for _, pod := range env.podsOfPool("steady") {
		return &pod
	}
	env.t.Fatal("the pool steady has no worker")
	return nil
}

// wantPoolsContinue checks that the upgrade lost and repeated no job, rolled out only the pool whose workers
// had no readiness probe, and that the new version stops workers without work.
func (env *queueEnv) wantPoolsContinue(steady *corev1.Pod) {
	env.t.Helper()
	env.endBatches()
	env.waitUntilAllDone()
	if result := env.verifyBatch(batchDuringUpgrade); !result.EachDoneOnce() || result.Revisions != 3 {
		env.t.Errorf("unexpected ledger: %+v", result)
	}
	wantNotRestarted(env.t, []corev1.Pod{*steady})
	poll.Until(env.t, "the pool to be scaled to zero", func() bool { return len(env.workerPods()) == 0 })
	env.runKubectl("delete", "workerpools", "orders", "steady")
}

// messagesOfBaseline is the number of messages that are sent before the upgrade.
const messagesOfBaseline = 5

// batchDuringUpgrade is sent until after the upgrade.
var batchDuringUpgrade = jobBatch{queue: "orders", run: "order", endless: true, rate: 15, takes: time.Second}

// createQueueOfBaseline creates a Queue with messages, whose name on the broker is its own, and whose
// Secret has no label.
func (env *queueEnv) createQueueOfBaseline() {
	env.t.Helper()
	env.runKubectl("create", "secret", "generic", "old", "--from-literal=url="+env.brokerURL())
	env.createQueue("mail", func(q *v1alpha1.Queue) {
		q.Spec.Name, q.Spec.Broker.URLSecretRef.Name, q.Spec.DeletionPolicy = "", "old", v1alpha1.DeletionPurge
	})
	env.sendBatch(jobBatch{queue: "mail", run: "job", jobs: messagesOfBaseline, rate: messagesOfBaseline})
	env.waitUntilQueueHasMessages("mail")
}

func (env *queueEnv) waitUntilQueueHasMessages(name string) {
	env.t.Helper()
	poll.Until(env.t, "the Queue "+name+" to have the messages", func() bool {
		ready := env.getQueue(name).Status.Ready
		return ready != nil && *ready == messagesOfBaseline
	})
}

// wantQueueContinues checks that the new version asks for the label of the Secret, and then uses the
// queue of the baseline.
func (env *queueEnv) wantQueueContinues() {
	env.t.Helper()
	command := []string{"label", "secret", "old", "-n", env.namespace, v1alpha1.LabelBroker + "=true"}
	poll.Until(env.t, "the Queue to ask for the label", func() bool {
		ready := meta.FindStatusCondition(env.getQueue("mail").Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.Reason == v1alpha1.ReasonSecretInvalid && strings.HasSuffix(ready.Message, "kubectl "+strings.Join(command, " "))
	})
	env.runKubectl(command...)
	env.waitUntilQueueReady("mail")
	env.waitUntilQueueHasMessages("mail")
	if name := env.getQueue("mail").Status.Name; name != "mail" {
		env.t.Errorf("the name on the broker is %s", name)
	}
}

// applyManifest does what kubectl apply --server-side does.
func applyManifest(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(filepath.Clean(path))
	requireNoError(t, err)
	defer file.Close()
	content, err := gzip.NewReader(file)
	requireNoError(t, err)
	manifest, err := io.ReadAll(content)
	requireNoError(t, err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		requireNoError(t, err)
		requireNoError(t, cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("yardmaster-install"), client.ForceOwnership))
	}
}

func wantOperatorImage(t *testing.T, want string) {
	t.Helper()
	if got := leaderPod(t).Spec.Containers[0].Image; got != want {
		t.Fatalf("the operator's image is %s, want %s", got, want)
	}
}
