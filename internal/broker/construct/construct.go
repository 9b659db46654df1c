// Package construct lets package clienttest create values for which packages client and worker have no public function. These packages
// set the variables.
package construct

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Client returns a *client.Client. The options are a client.Options, whose Broker is ignored. Calls fail while check
// returns an error.
var Client func(options any, producer broker.Producer, now func() time.Time, check func() error) (any, error)

// Runner returns a function that runs a message as a worker does, with a worker.Handler, and a function that ends the runner.
var Runner func(
	ctx context.Context, store broker.KeyStore, subscription broker.Subscription, queue broker.QueueConfig, handler any, now func() time.Time,
) (run func(broker.Delivery), stop func(), err error)
