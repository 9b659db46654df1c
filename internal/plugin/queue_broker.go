package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/broker/dial"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

// brokerDialTimeout limits how long connecting to a broker takes.
const brokerDialTimeout = 15 * time.Second

// connectedQueue is a Queue with a connection to its broker.
type connectedQueue struct {
	*v1alpha1.Queue
	broker.Engine

	// brokerName is the queue's name on the broker.
	brokerName     string
	stopForwarding func()
}

// runOnBroker runs a function with a connection to the broker of the Queue. Its errors name the Queue.
func runOnBroker(ctx context.Context, cluster *clusterConnection, object *v1alpha1.Queue, address string, run func(ctx context.Context, q *connectedQueue) error) error {
	q, err := connectToBroker(ctx, cluster, object, address)
	if err == nil {
		defer q.stopForwarding()
		defer q.Disconnect()
		err = run(ctx, q)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", queueKind.qualifiedName(object), err)
	}
	return nil
}

// connectToBroker connects to the broker of the Queue with the user's permissions. An empty
// address selects the address in the Queue's Secret.
func connectToBroker(ctx context.Context, cluster *clusterConnection, q *v1alpha1.Queue, address string) (*connectedQueue, error) {
	switch {
	case q.Status.Name == "":
		return nil, fmt.Errorf("the operator has not created the queue of Queue %s on its broker yet", q.Name)
	case meta.IsStatusConditionTrue(q.Status.Conditions, v1alpha1.ConditionConflict):
		return nil, fmt.Errorf("another Queue owns the queue %s on the broker and its dead letters", q.Status.Name)
	}
	reference, err := resolveBroker(ctx, cluster, q)
	if err != nil {
		return nil, err
	}
	access, err := brokerAccess(ctx, cluster, reference, address)
	if err != nil {
		return nil, err
	}
	engine := detectEngine(q, reference, access.URL)
	if !dial.IsSupported(engine) {
		return nil, fmt.Errorf("this version of the plugin does not support the engine %s", engine)
	}
	ctx, cancel := context.WithTimeout(ctx, brokerDialTimeout)
	defer cancel()
	stopForwarding := func() {}
	if address == "" {
		if stopForwarding, err = cluster.forwardToBroker(ctx, access); err != nil {
			return nil, err
		}
	}
	access.Dial = bounded.NewDialer(bounded.Options{AllowLocal: true}).For(cluster.namespace) // a forwarded port is local
	connected, err := dial.Connect(ctx, engine, *access)
	if err != nil {
		stopForwarding()
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	return &connectedQueue{q, connected, q.Status.Name, stopForwarding}, nil
}

// detectEngine returns the engine of the broker reference, else the one in the Queue's status,
// else the one that the scheme of the URL suggests.
func detectEngine(q *v1alpha1.Queue, b *v1alpha1.Broker, address string) dial.EngineName {
	switch {
	case b != nil:
		return dial.EngineName(b.Engine)
	case q.Status.Engine != "":
		return dial.EngineName(q.Status.Engine)
	}
	return dial.EngineOf(address)
}

// resolveBroker returns the broker of a Queue as the operator resolves it: from the Queue, or
// from a Policy. It returns nil for the operator's default broker.
func resolveBroker(ctx context.Context, c *clusterConnection, q *v1alpha1.Queue) (*v1alpha1.Broker, error) {
	if q.Spec.Broker != nil {
		return q.Spec.Broker, nil
	}
	var policies v1alpha1.PolicyList
	if err := c.List(ctx, &policies, client.InNamespace(q.Namespace)); err != nil {
		return nil, err
	}
	set, err := policy.NewSet(policies.Items)
	if err != nil {
		return nil, err
	}
	selected := set.Select(q.Labels)
	return policy.EffectiveQueue(q, &selected).Broker, nil
}

var errOperatorBroker = errors.New("it uses the operator's default broker, whose address users cannot read: set --broker-url")

// brokerAccess reads the broker's Secrets. A given address replaces theirs.
func brokerAccess(ctx context.Context, c *clusterConnection, b *v1alpha1.Broker, address string) (*broker.Credentials, error) {
	if b == nil {
		if address == "" {
			return nil, errOperatorBroker
		}
		return &broker.Credentials{URL: address}, nil
	}
	access, err := brokeraccess.ReadCredentials(ctx, callerErrorReader{c}, brokeraccess.KeyOf(c.namespace, b))
	if err != nil {
		return nil, err
	}
	if address != "" {
		access.URL, access.Sentinel = address, nil // it is the address of the server itself
	}
	return access, nil
}

// callerErrorReader hides the type of permission errors. Otherwise package brokeraccess would
// describe them as missing permissions of the operator.
type callerErrorReader struct{ client.Reader }

// Get implements client.Reader.
func (w callerErrorReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, object, options...)
	if isPermissionError(err) {
		return errors.New(err.Error())
	}
	return err
}
