// Package restore tests what is lost and what runs again if etcd is restored from a backup, the
// previous version of the operator is installed again, or the CustomResourceDefinitions are deleted.
// It needs the KUBECONFIG of a local cluster, and no other operator may run there.
package restore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
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
	// durationAnnotation is how long a simulated Pod runs, messageAnnotation what it reports.
	durationAnnotation = "sim.localcluster.dev/duration"
	messageAnnotation  = "sim.localcluster.dev/message"
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

// buildOperator builds the operator of this version.
func (env *testEnv) buildOperator() string {
	env.t.Helper()
	binary, err := harness.BuildOperator(env.t.Context())
	env.require(err)
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

// restartStoppedOperator waits until the operator stops by itself with this message in its log, and
// starts it again, as the kubelet does.
func (env *testEnv) restartStoppedOperator(binary, message string) {
	env.t.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- env.operator.Wait() }()
	select {
	case err := <-stopped:
		if err == nil {
			env.t.Fatal("the operator stopped without an error")
		}
	case <-time.After(waitTimeout):
		env.t.Fatal("the operator did not stop")
	}
	log, err := os.ReadFile(harness.OperatorLog())
	env.require(err)
	if !bytes.Contains(log, []byte(message)) {
		env.t.Fatalf("the operator's log does not contain %q:\n%s", message, log)
	}
	env.startOperator(binary)
}

// run runs a subtest, which the methods of env then fail.
func (env *testEnv) run(title string, check func(t *testing.T)) {
	parent := env.t
	parent.Run(title, func(t *testing.T) {
		env.t = t
		defer func() { env.t = parent }()
		check(t)
	})
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

// wantMessagesOnBroker checks the number of messages in the stream of a queue with this name.
func (env *testEnv) wantMessagesOnBroker(t *testing.T, queueName string, want uint64) {
	t.Helper()
	p, err := harness.ConnectProducer(env.broker, queueName)
	env.require(err)
	defer p.CloseConnection()
	stream, err := p.QueueStream(t.Context())
	env.require(err)
	if got := stream.CachedInfo().State.Msgs; got != want {
		t.Errorf("%d messages in the queue %s, want %d", got, queueName, want)
	}
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
