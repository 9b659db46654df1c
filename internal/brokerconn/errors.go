package brokerconn

import (
	"errors"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// ErrConnecting tells that the first try to connect is under way. Listeners are told of
// its end.
var ErrConnecting = errors.New("connecting to the broker")

// ConnectionError is why there is no connection.
type ConnectionError struct {
	// Reason of the condition that tells of it.
	Reason string
	Err    error
}

func (e *ConnectionError) Error() string { return e.Err.Error() }

func (e *ConnectionError) Unwrap() error { return e.Err }

// ConditionReason an error that a broker has given, for a condition.
func ConditionReason(err error) string {
	if problem := (*ConnectionError)(nil); errors.As(err, &problem) {
		return problem.Reason
	}
	switch broker.ClassOf(err) {
	case broker.ClassUnauthorized:
		return v1alpha1.ReasonUnauthorized
	case broker.ClassInvalid:
		return v1alpha1.ReasonRefusedByBroker
	case broker.ClassConflict:
		return v1alpha1.ReasonOwnedByOtherQueue
	case broker.ClassUnreachable, broker.ClassNotFound, broker.ClassUnknown:
	}
	return v1alpha1.ReasonConnectionFailed
}
