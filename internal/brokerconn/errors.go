package brokerconn

import (
	"errors"

	"github.com/yardmaster/yardmaster/internal/core"
)

// ErrConnecting is returned until the first attempt to connect ends. Listeners are notified then.
var ErrConnecting = errors.New("connecting to the broker")

var errNoBroker = errors.New("the object has no broker: set spec.broker, a Policy with defaults.broker, or the operator's flag --broker-url-secret")

// ConnectionError is why a connection cannot be used.
type ConnectionError struct {
	// Reason of the condition that reports it.
	Reason string
	Err    error
}

func (e *ConnectionError) Error() string { return e.Err.Error() }

func (e *ConnectionError) Unwrap() error { return e.Err }

// Problem returns the error as conditions report it.
func (e *ConnectionError) Problem() core.Problem {
	return core.Problem{Reason: e.Reason, Message: e.Err.Error()}
}
