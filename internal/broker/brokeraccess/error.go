package brokeraccess

import "github.com/yardmaster/yardmaster/internal/decision"

// ConnectionError is why a connection cannot be used.
type ConnectionError struct {
	// Reason of the condition that reports it.
	Reason string
	Err    error
}

func (e *ConnectionError) Error() string { return e.Err.Error() }

func (e *ConnectionError) Unwrap() error { return e.Err }

// Problem returns the error as conditions report it.
func (e *ConnectionError) Problem() decision.Problem {
	return decision.Problem{Reason: e.Reason, Message: e.Err.Error()}
}
