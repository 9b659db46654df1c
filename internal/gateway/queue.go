package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokerconn"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// queuesLast is how long a Queue is used after it was read.
const queuesLast = 2 * time.Second

// target is the destination of the jobs of a Queue.
type target struct {
	// name of the queue on the broker.
	name   string
	broker *v1alpha1.Broker
	// refused is why the Queue accepts no jobs; nil if it does.
	refused *failure
}

// queues finds the brokers of Queues.
type queues struct {
	reader  client.Reader
	brokers *brokerconn.Manager
	targets *lookup[target]
	shares  *shares

	mu sync.Mutex
	// changed is closed at the next change of a connection.
	changed chan struct{}
}

func newQueues(reader client.Reader, brokers *brokerconn.Manager) *queues {
	q := &queues{reader: reader, brokers: brokers, targets: newLookup[target](queuesLast), shares: newAskShares("Queues"), changed: make(chan struct{})}
	brokers.AddListener(func(brokerconn.Notification) {
		q.mu.Lock()
		defer q.mu.Unlock()
		close(q.changed)
		q.changed = make(chan struct{})
	})
	return q
}

// producer returns the connection to the broker of a Queue, and the name of the queue there. It waits while the connection is being
// established.
func (q *queues) producer(ctx context.Context, namespace, name string) (conn *brokerconn.Conn, producer broker.Producer, queue string, err error) {
	found, err := q.targets.find(ctx, asker{q.shares, namespace}, namespace+"/"+name, func(ctx context.Context) (target, error) { return q.read(ctx, namespace, name) })
	if err != nil {
		return nil, nil, "", err
	}
	if found.refused != nil {
		return nil, nil, "", found.refused
	}
	conn = q.brokers.Conn(namespace, found.broker)
	engine, err := q.engine(ctx, conn)
	if err != nil {
		return nil, nil, "", err
	}
	producer, isProducer := engine.(broker.Producer)
	if !isProducer {
		return nil, nil, "", fail(http.StatusBadRequest, reasonUnsupported, "the engine of the Queue cannot send jobs")
	}
	return conn, producer, found.name, nil
}

// read returns the destination of the jobs of a Queue. The operator must have confirmed the current spec: it checks that the queue on the
// broker belongs to this Queue and not to a Queue of another namespace.
func (q *queues) read(ctx context.Context, namespace, name string) (target, error) {
	object := &v1alpha1.Queue{}
	err := q.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch class := decision.ClassOf(err); {
	case class == decision.NotFound:
		return target{refused: fail(http.StatusNotFound, reasonQueueNotFound, fmt.Sprintf("Queue %s does not exist in namespace %s", name, namespace))}, nil
	case class == decision.PermissionMissing:
		return target{refused: fail(http.StatusNotFound, reasonNamespaceNotFound, "the gateway does not serve namespace "+namespace)}, nil
	case err != nil:
		return target{}, apiFailure("reading the Queue", err)
	}
	ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady)
	text := "Queue " + name + " is "
	switch {
	case !object.DeletionTimestamp.IsZero():
		return target{refused: fail(http.StatusConflict, reasonQueueDraining, text+"being deleted")}, nil
	case ready == nil || ready.ObservedGeneration != object.Generation || object.Status.Name == "":
		return target{refused: fail(http.StatusServiceUnavailable, reasonQueueNotReady, text+"not ready: the operator has not processed its current version")}, nil
	case ready.Status != metav1.ConditionTrue:
		return target{refused: fail(http.StatusServiceUnavailable, reasonQueueNotReady, text+"not ready: "+decision.FormatReason(ready.Reason, ready.Message))}, nil
	}
	policies, err := kube.ReadPolicies(ctx, q.reader, namespace)
	if err != nil {
		return target{}, apiFailure("reading the Policies of the Queue", err)
	}
	selected := policies.Select(object.Labels)
	return target{name: object.Status.Name, broker: policy.EffectiveQueue(object, &selected).Broker}, nil
}

// connectTimeout is how long a request waits for the first connection to a broker.
const connectTimeout = 5 * time.Second

// engine waits until a new connection works or has a problem.
func (q *queues) engine(ctx context.Context, conn *brokerconn.Conn) (broker.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for {
		q.mu.Lock()
		changed := q.changed
		q.mu.Unlock()
		engine, err := conn.Engine()
		if err != brokerconn.ErrConnecting { //nolint:errorlint // it is returned as it is
			return engine, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}
