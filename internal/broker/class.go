package broker

import (
	"errors"
	"fmt"
)

// ErrorClass is what kind of failure an error is: it decides what is done about it.
type ErrorClass string

// The classes.
const (
	// ClassUnreachable: the broker does not answer. It may, later.
	ClassUnreachable ErrorClass = "Unreachable"
	// ClassUnauthorized: the broker knows us not, or will not let us. Only a person helps.
	ClassUnauthorized ErrorClass = "Unauthorised"
	// ClassInvalid: the broker cannot do what is asked. Only a person helps.
	ClassInvalid ErrorClass = "Invalid"
	// ClassConflict: what is asked for belongs to another.
	ClassConflict ErrorClass = "Conflict"
	// ClassNotFound: what is asked about is not there.
	ClassNotFound ErrorClass = "Missing"
	// ClassUnknown: none of these. It is tried again.
	ClassUnknown ErrorClass = "Unknown"
)

// ClassifiedError is an error whose class an engine knows.
type ClassifiedError struct {
	Class ErrorClass
	Err   error
}

func (e *ClassifiedError) Error() string { return e.Err.Error() }

func (e *ClassifiedError) Unwrap() error { return e.Err }

// Errorf makes an error of a class.
func Errorf(class ErrorClass, format string, values ...any) error {
	return &ClassifiedError{Class: class, Err: fmt.Errorf(format, values...)}
}

// ClassOf tells an error's class.
func ClassOf(err error) ErrorClass {
	if conflict := (*OwnerConflictError)(nil); errors.As(err, &conflict) {
		return ClassConflict
	}
	if failure := (*ClassifiedError)(nil); errors.As(err, &failure) {
		return failure.Class
	}
	return ClassUnknown
}
