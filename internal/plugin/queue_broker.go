package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	brokers "github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/policy"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// dialTime is how long a broker may take to be reached.
const dialTime = 15 * time.Second

// brokerQueue is a Queue with a connection to its broker.
type brokerQueue struct {
	*v1alpha1.Queue
	broker.Engine

	// on is the queue's name on the broker.
	on   string
	hang func()
}

func (b *brokerQueue) close() {
	b.Disconnect()
	b.hang()
}

// reach connects to the broker of the Queue, with the caller's rights: at the address given,
// or else at the one that its Secret has.
func (e *environment) reach(ctx context.Context, name, address string) (*brokerQueue, error) {
	cluster, err := e.connect(e.config)
	if err != nil {
		return nil, err
	}
	q := &v1alpha1.Queue{}
	if err := cluster.read(ctx, name, q); err != nil {
		return nil, err
	}
	called := queueKind().called(q)
	if meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionConflict) {
		return nil, fmt.Errorf("%s: an older Queue has the queue %s on the broker, and its dead letters", called, queue.BrokerQueueName(q))
	}
	named, err := brokerOf(ctx, cluster, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	access, err := accessTo(ctx, cluster, named, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	engine := engineOf(q, named, access.URL)
	if !dial.IsSupported(engine) {
		return nil, fmt.Errorf("%s: its engine is %s, which this program does not know", called, engine)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	hang := func() {}
	if address == "" {
		if hang, err = cluster.forward(ctx, access); err != nil {
			return nil, fmt.Errorf("%s: %w", called, err)
		}
	}
	connected, err := dial.Connect(ctx, engine, *access)
	if err != nil {
		hang()
		return nil, fmt.Errorf("%s: the broker: %w", called, err)
	}
	return &brokerQueue{q, connected, queue.BrokerQueueName(q), hang}, nil
}

// engineOf a broker: as its reference says, or as the operator has found it, or as the URL
// tells.
func engineOf(q *v1alpha1.Queue, b *v1alpha1.Broker, address string) dial.EngineName {
	switch {
	case b != nil:
		return dial.EngineName(b.Engine)
	case q.Status.Engine != "":
		return dial.EngineName(q.Status.Engine)
	}
	return dial.EngineOf(address)
}

// brokerOf a Queue, as the operator finds it; nil: it is the operator's own.
func brokerOf(ctx context.Context, c *connection, q *v1alpha1.Queue) (*v1alpha1.Broker, error) {
	if q.Spec.Broker != nil {
		return q.Spec.Broker, nil
	}
	var policies v1alpha1.PolicyList
	if err := c.List(ctx, &policies, client.InNamespace(q.Namespace)); err != nil {
		return nil, err
	}
	selected, err := policy.Select(policies.Items, q.Labels)
	if err != nil {
		return nil, err
	}
	return policy.Queue(q, selected).Broker, nil
}

var errOperatorsBroker = errors.New("it is on the operator's own broker, whose address is not for everybody to read: give --broker-url")

// accessTo a broker: what its Secrets say, at the address given in place of theirs.
func accessTo(ctx context.Context, c *connection, b *v1alpha1.Broker, address string) (*broker.Credentials, error) {
	if b == nil {
		if address == "" {
			return nil, errOperatorsBroker
		}
		return &broker.Credentials{URL: address}, nil
	}
	access, err := brokers.ReadCredentials(ctx, ownWords{c}, c.namespace, b)
	if err != nil {
		return nil, err
	}
	access.URL = cmp.Or(address, access.URL)
	return access, nil
}

// ownWords keeps the API server's words about what the caller may not read: package
// connection would speak of the operator's rights.
type ownWords struct{ client.Reader }

// Get implements client.Reader.
func (w ownWords) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, object, options...)
	if lasting(err) {
		return errors.New(err.Error())
	}
	return err
}
