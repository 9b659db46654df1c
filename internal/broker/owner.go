package broker

import (
	"fmt"
	"time"
)

// Owner is the object that a queue belongs to.
type Owner struct {
	// UID tells it from every other object, those of other clusters too.
	UID string
	// Name of it, for people: namespace/name.
	Name string
	// Created is when it was made.
	Created time.Time
}

// Precedes tells which of two owners of one queue keeps it: the older one, and of two
// of the same age the one whose UID is smaller, so that both come to the same answer.
func (o Owner) Precedes(other Owner) bool {
	if !o.Created.Equal(other.Created) {
		return o.Created.Before(other.Created)
	}
	return o.UID < other.UID
}

func (o Owner) String() string {
	return fmt.Sprintf("%s (UID %s, created %s)", o.Name, o.UID, o.Created.UTC().Format(time.RFC3339))
}

// ConflictError tells that a queue belongs to another object.
type ConflictError struct {
	Queue string
	Owner Owner
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the queue %s belongs to %s", e.Queue, e.Owner)
}
