// Package restore tests what is lost and what runs again if etcd is restored from a backup, the
// previous version of the operator is installed again, or the CustomResourceDefinitions are deleted.
// It needs the KUBECONFIG of a local cluster, and no other operator may run there.
package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	root = "../../.."
	// durationAnnotation is how long a simulated Pod runs, messageAnnotation what it reports.
	durationAnnotation = "sim.localcluster.dev/duration"
	messageAnnotation  = "sim.localcluster.dev/message"
)

func TestMain(m *testing.M) {
	testenv.Main(m, "make soak SOAK_PARTS=restore", func(context.Context, *testenv.Cluster) (func() error, error) { return testenv.NothingToEnd, nil })
}

// restoreTest is a namespace of a local cluster, and a broker.
type restoreTest struct {
	*harness.Cluster
	harness.Environment

	t      *testing.T
	broker string
	// watched is the operator's flag --namespaces.
	watched  string
	operator *testenv.Operator
}

func newRestoreTest(t *testing.T, namespace harness.Environment) *restoreTest {
	t.Helper()
	if os.Getenv("RESTORE") == "" {
		t.Skip("this test kills the control plane or deletes all objects of the cluster: use make soak SOAK_PARTS=restore")
	}
	t.Chdir(root)
	ctrl.SetLogger(logr.Discard())
	env := &restoreTest{Environment: namespace, watched: string(namespace), t: t, broker: "nats://" + natstest.Start(t).Address()}
	env.connect()
	env.Cluster.CreateNamespace(t, string(namespace))
	env.require(env.CreateNamespace(t.Context(), env.Cluster, env.broker))
	return env
}

// connect connects to the cluster and installs the CustomResourceDefinitions of this version.
func (env *restoreTest) connect() {
	env.t.Helper()
	cluster, err := harness.ConnectToCluster(os.Getenv("KUBECONFIG"))
	env.require(err)
	env.require(cluster.InstallCRDs(env.t.Context()))
	env.Cluster = cluster
}

func (env *restoreTest) buildOperator() string {
	env.t.Helper()
	binary, err := testenv.BuildOperator()
	env.require(err)
	return binary
}

// startOperator starts an operator, which runs until stopOperator or the end of the test.
func (env *restoreTest) startOperator(binary string) {
	env.t.Helper()
	operator, err := testenv.StartOperator(env.t.Context(), binary, env.Cluster.Cluster,
		"--namespaces", env.watched, "--report-namespaces", string(env.Environment), "--report-interval", "1s", "--queue-sweep", "2s")
	env.require(err)
	env.operator = operator
	env.t.Cleanup(env.stopOperator)
}

func (env *restoreTest) stopOperator() {
	if env.operator != nil {
		env.operator.Stop()
		env.operator = nil
	}
}

// restartStoppedOperator waits until the operator stops by itself with this message in its log, and
// starts it again, as the kubelet does.
func (env *restoreTest) restartStoppedOperator(binary, message string) {
	env.t.Helper()
	poll.Until(env.t, "the operator to stop", func() bool {
		select {
		case <-env.operator.Exited():
			return true
		default:
			return false
		}
	})
	require.True(env.t, !env.operator.State().Success(), "the operator stopped without an error")
	log, err := os.ReadFile(env.operator.LogFile)
	env.require(err)
	require.True(env.t, bytes.Contains(log, []byte(message)), "the operator's log does not contain %q:\n%s", message, log)
	env.startOperator(binary)
}

// run runs a subtest, which the methods of env then fail.
func (env *restoreTest) run(title string, check func(t *testing.T)) {
	parent := env.t
	parent.Run(title, func(t *testing.T) {
		env.t = t
		defer func() { env.t = parent }()
		check(t)
	})
}

func (env *restoreTest) require(err error) {
	env.t.Helper()
	require.NoError(env.t, err)
}

// waitFor waits until the condition is true for the object, which it reads each time.
func (env *restoreTest) waitFor(what string, object client.Object, condition func() bool) {
	env.t.Helper()
	if err := poll.UntilNil(env.t.Context(), func() error {
		if err := env.Get(env.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !condition() {
			return fmt.Errorf("it is %+v", object)
		}
		return nil
	}); err != nil {
		env.t.Fatalf("waiting for %s of %T %s: %v", what, object, object.GetName(), err)
	}
}

// waitForMessages waits until a Queue is ready and reports this number of messages.
func (env *restoreTest) waitForMessages(q *v1alpha1.Queue, messages int64) {
	env.t.Helper()
	env.waitFor("messages", q, func() bool {
		return meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionReady) && q.Status.Backlog != nil && *q.Status.Backlog == messages
	})
}

func (env *restoreTest) publish(queue *v1alpha1.Queue, messages int) {
	env.t.Helper()
	p, err := harness.ConnectProducer(env.broker, queue.Status.Name)
	env.require(err)
	defer p.CloseConnection()
	env.require(p.PublishBurst(env.t.Context(), messages, time.Minute))
}

func (env *restoreTest) wantMessagesOnBroker(t *testing.T, queueName string, want uint64) {
	t.Helper()
	p, err := harness.ConnectProducer(env.broker, queueName)
	env.require(err)
	defer p.CloseConnection()
	stream, err := p.QueueStream(t.Context())
	env.require(err)
	assert.Equal(t, "messages in the queue "+queueName, want, stream.CachedInfo().State.Msgs)
}

func (env *restoreTest) hasStream(queue *v1alpha1.Queue) bool {
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
