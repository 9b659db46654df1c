package brokerconn

import (
	"errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// ErrConnecting tells that the first try to connect is under way. Listeners are told of
// its end.
var ErrConnecting = errors.New("connecting to the broker")

// Error is why there is no connection.
type Error struct {
	// Reason of the condition that tells of it.
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ReasonOf an error that a broker has given, for a condition.
func ReasonOf(err error) string {
	if problem := (*Error)(nil); errors.As(err, &problem) {
		return problem.Reason
	}
	switch broker.ClassOf(err) {
	case broker.Unauthorised:
		return v1alpha1.ReasonUnauthorized
	case broker.Invalid:
		return v1alpha1.ReasonRefusedByBroker
	case broker.Conflict:
		return v1alpha1.ReasonOlderQueue
	case broker.Unreachable, broker.Missing, broker.Unknown:
	}
	return v1alpha1.ReasonConnectionFailed
}
