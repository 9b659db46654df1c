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

// brokerDialTimeout is how long a broker may take to be reached.
const brokerDialTimeout = 15 * time.Second

// connectedQueue is a Queue with a connection to its broker.
type connectedQueue struct {
	*v1alpha1.Queue
	broker.Engine

	// brokerName is the queue's name on the broker.
	brokerName     string
	stopForwarding func()
}

func (b *connectedQueue) closeConnection() {
	b.Disconnect()
	b.stopForwarding()
}

// connectToBroker connects to the broker of the Queue, with the caller's rights: at the address given,
// or else at the one that its Secret has.
func (e *environment) connectToBroker(ctx context.Context, name, address string) (*connectedQueue, error) {
	cluster, err := e.connect(e.clientConfig)
	if err != nil {
		return nil, err
	}
	q := &v1alpha1.Queue{}
	if err := cluster.getByName(ctx, name, q); err != nil {
		return nil, err
	}
	called := queueKind().qualifiedName(q)
	if meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionConflict) {
		return nil, fmt.Errorf("%s: an older Queue has the queue %s on the broker, and its dead letters", called, queue.BrokerQueueName(q))
	}
	named, err := resolveBroker(ctx, cluster, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	access, err := brokerAccess(ctx, cluster, named, address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", called, err)
	}
	engine := detectEngine(q, named, access.URL)
	if !dial.IsSupported(engine) {
		return nil, fmt.Errorf("%s: its engine is %s, which this program does not know", called, engine)
	}
	ctx, cancel := context.WithTimeout(ctx, brokerDialTimeout)
	defer cancel()
	hang := func() {}
	if address == "" {
		if hang, err = cluster.forwardToBroker(ctx, access); err != nil {
			return nil, fmt.Errorf("%s: %w", called, err)
		}
	}
	connected, err := dial.Connect(ctx, engine, *access)
	if err != nil {
		hang()
		return nil, fmt.Errorf("%s: the broker: %w", called, err)
	}
	return &connectedQueue{q, connected, queue.BrokerQueueName(q), hang}, nil
}

// detectEngine a broker: as its reference says, or as the operator has found it, or as the URL
// tells.
func detectEngine(q *v1alpha1.Queue, b *v1alpha1.Broker, address string) dial.EngineName {
	switch {
	case b != nil:
		return dial.EngineName(b.Engine)
	case q.Status.Engine != "":
		return dial.EngineName(q.Status.Engine)
	}
	return dial.EngineOf(address)
}

// resolveBroker a Queue, as the operator finds it; nil: it is the operator's own.
func resolveBroker(ctx context.Context, c *clusterConnection, q *v1alpha1.Queue) (*v1alpha1.Broker, error) {
	if q.Spec.Broker != nil {
		return q.Spec.Broker, nil
	}
	var policies v1alpha1.PolicyList
	if err := c.List(ctx, &policies, client.InNamespace(q.Namespace)); err != nil {
		return nil, err
	}
	selected, err := policy.SelectPolicies(policies.Items, q.Labels)
	if err != nil {
		return nil, err
	}
	return policy.EffectiveQueue(q, selected).Broker, nil
}

var errOperatorBroker = errors.New("it is on the operator's own broker, whose address is not for everybody to read: give --broker-url")

// brokerAccess a broker: what its Secrets say, at the address given in place of theirs.
func brokerAccess(ctx context.Context, c *clusterConnection, b *v1alpha1.Broker, address string) (*broker.Credentials, error) {
	if b == nil {
		if address == "" {
			return nil, errOperatorBroker
		}
		return &broker.Credentials{URL: address}, nil
	}
	access, err := brokers.ReadCredentials(ctx, callerErrorReader{c}, c.namespace, b)
	if err != nil {
		return nil, err
	}
	access.URL = cmp.Or(address, access.URL)
	return access, nil
}

// callerErrorReader keeps the API server's words about what the caller may not read: package
// connection would speak of the operator's rights.
type callerErrorReader struct{ client.Reader }

// Get implements client.Reader.
func (w callerErrorReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, object, options...)
	if isPermissionError(err) {
		return errors.New(err.Error())
	}
	return err
}
