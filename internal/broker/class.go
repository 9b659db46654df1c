package broker

import (
	"errors"
	"fmt"
)

// Class is what kind of failure an error is: it decides what is done about it.
type Class string

// The classes.
const (
	// Unreachable: the broker does not answer. It may, later.
	Unreachable Class = "Unreachable"
	// Unauthorised: the broker knows us not, or will not let us. Only a person helps.
	Unauthorised Class = "Unauthorised"
	// Invalid: the broker cannot do what is asked. Only a person helps.
	Invalid Class = "Invalid"
	// Conflict: what is asked for belongs to another.
	Conflict Class = "Conflict"
	// Missing: what is asked about is not there.
	Missing Class = "Missing"
	// Unknown: none of these. It is tried again.
	Unknown Class = "Unknown"
)

// ClassedError is an error whose class an engine knows.
type ClassedError struct {
	Class Class
	Err   error
}

func (e *ClassedError) Error() string { return e.Err.Error() }

func (e *ClassedError) Unwrap() error { return e.Err }

// Fail makes an error of a class.
func Fail(class Class, format string, values ...any) error {
	return &ClassedError{Class: class, Err: fmt.Errorf(format, values...)}
}

// ClassOf tells an error's class.
func ClassOf(err error) Class {
	if conflict := (*ConflictError)(nil); errors.As(err, &conflict) {
		return Conflict
	}
	if failure := (*ClassedError)(nil); errors.As(err, &failure) {
		return failure.Class
	}
	return Unknown
}
