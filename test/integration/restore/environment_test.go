// Package restore tests what is lost and what runs again if etcd is restored from a backup, the
// previous version of the operator is installed again, or the CustomResourceDefinitions are deleted.
// It needs the KUBECONFIG of a local cluster, and no other operator may run there.
package restore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const (
	root        = "../../.."
	waitTimeout = 2 * time.Minute
	// durationAnnotation is how long a simulated Pod runs.
	durationAnnotation = "sim.localcluster.dev/duration"
)

// testEnv is a namespace of a local cluster, and a broker.
type testEnv struct {
	*harness.Cluster
	harness.Environment

	t      *testing.T
	broker string
	// watched is the operator's flag --namespaces.
	watched  string
	operator *exec.Cmd
}

func newTestEnv(t *testing.T, namespace harness.Environment) *testEnv {
	t.Helper()
	if os.Getenv("RESTORE") == "" {
		t.Skip("this test kills the control plane or deletes all objects of the cluster: use make test-restore")
	}
	t.Chdir(root)
	ctrl.SetLogger(logr.Discard())
	env := &testEnv{Environment: namespace, watched: string(namespace), t: t, broker: "nats://" + natstest.Start(t).Address()}
	env.connect()
	env.require(env.CreateNamespace(t.Context(), env.Cluster, env.broker))
	env.createRunner()
	t.Cleanup(func() {
		_ = env.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(namespace)}})
	})
	return env
}

// connect connects to the cluster and installs the CustomResourceDefinitions of this version.
func (env *testEnv) connect() {
	env.t.Helper()
	cluster, _, err := harness.OpenCluster(env.t.Context(), os.Getenv("KUBECONFIG"))
	env.require(err)
	env.Cluster = cluster
}

// createRunner creates the SessionRunner of all sessions.
func (env *testEnv) createRunner() {
	env.t.Helper()
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta("default")}
	runner.Spec.Image, runner.Spec.RunAsUser = "registry.example/runner:1", new(int64(65532))
	env.require(env.Create(env.t.Context(), runner))
}

// buildOperator builds the operator of this version.
func (env *testEnv) buildOperator() string {
	env.t.Helper()
	binary := filepath.Join(env.t.TempDir(), "yardmaster")
	env.require(harness.RunCommand(env.t.Context(), "go", "build", "-o", binary, "./cmd/yardmaster"))
	return binary
}

// startOperator starts an operator, which runs until stopOperator or the end of the test.
func (env *testEnv) startOperator(binary string) {
	env.t.Helper()
	operator, err := harness.StartOperator(env.t.Context(), binary, env.Cluster, append(harness.MetricsFlags(),
		"--namespaces", env.watched, "--report-namespaces", string(env.Environment), "--report-interval", "1s", "--queue-sweep", "2s")...)
	env.require(err)
	env.operator = operator
	env.t.Cleanup(env.stopOperator)
}

func (env *testEnv) stopOperator() {
	if env.operator != nil {
		harness.TerminateProcess(env.operator)
		env.operator = nil
	}
}

func (env *testEnv) require(err error) {
	env.t.Helper()
	if err != nil {
		env.t.Fatal(err)
	}
}

// eventually waits until the condition is true for the object, which it reads each time.
func (env *testEnv) eventually(what string, object client.Object, condition func() bool) {
	env.t.Helper()
	err := harness.PollUntil(env.t.Context(), waitTimeout, func() (bool, error) {
		return env.Get(env.t.Context(), client.ObjectKeyFromObject(object), object) == nil && condition(), nil
	})
	if err != nil {
		env.t.Fatalf("waiting for %s of %T %s: %v; it is %+v", what, object, object.GetName(), err, object)
	}
}

// newSequence returns a SequentialJob with the steps a, b and c. Each takes as long as the
// annotation says.
func (env *testEnv) newSequence(name, duration string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sj.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{durationAnnotation: duration}}}
	for _, step := range []string{"a", "b", "c"} {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: step, Container: corev1.Container{Name: step, Image: "registry.example/tool:1", Command: []string{"run"}}})
	}
	return sj
}

func (env *testEnv) waitForPhase(sj *v1alpha1.SequentialJob, phase v1alpha1.SequentialJobPhase) {
	env.t.Helper()
	env.eventually("phase "+string(phase), sj, func() bool { return sj.Status.Phase == phase })
}

// waitForActiveStep waits until the step of a SequentialJob has a Job.
func (env *testEnv) waitForActiveStep(sj *v1alpha1.SequentialJob, step string) {
	env.t.Helper()
	env.eventually("step "+step, sj, func() bool {
		for i := range sj.Status.Steps {
			if s := &sj.Status.Steps[i]; s.Name == step && s.Phase == v1alpha1.StepRunning {
				return true
			}
		}
		return false
	})
}

// waitForMessages waits until a Queue is ready and reports this number of messages.
func (env *testEnv) waitForMessages(q *v1alpha1.Queue, messages int64) {
	env.t.Helper()
	env.eventually("messages", q, func() bool {
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady) && q.Status.Ready != nil && *q.Status.Ready == messages
	})
}

// publish sends messages to a queue.
func (env *testEnv) publish(queue *v1alpha1.Queue, messages int) {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	env.require(p.PublishBurst(env.t.Context(), messages, waitTimeout))
}

// messagesOnBroker returns the number of messages in a queue's stream.
func (env *testEnv) messagesOnBroker(queue *v1alpha1.Queue) uint64 {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	stream, err := p.QueueStream(env.t.Context())
	env.require(err)
	return stream.CachedInfo().State.Msgs
}

// hasStream reports whether the queue exists on the broker.
func (env *testEnv) hasStream(queue *v1alpha1.Queue) bool {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	_, err = p.QueueStream(env.t.Context())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		env.require(err)
	}
	return err == nil
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
