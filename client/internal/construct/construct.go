// Package construct lets package clienttest create a Client with queues in memory.
package construct

import (
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Client returns a *client.Client. The options are a client.Options, whose Broker is ignored. Package client sets the
// variable.
var Client func(options any, producer broker.Producer, engine string, now func() time.Time) (any, error)
