package broker

import (
	"fmt"
	"time"
)

// QueueOwner is the object that a queue belongs to.
type QueueOwner struct {
	// UID tells it from every other object, those of other clusters too.
	UID string
	// Name of it, for people: namespace/name.
	Name string
	// CreationTime is when it was made.
	CreationTime time.Time
}

// HasPrecedenceOver tells which of two owners of one queue keeps it: the older one, and of two
// of the same age the one whose UID is smaller, so that both come to the same answer.
func (o QueueOwner) HasPrecedenceOver(other QueueOwner) bool {
	if !o.CreationTime.Equal(other.CreationTime) {
		return o.CreationTime.Before(other.CreationTime)
	}
	return o.UID < other.UID
}

func (o QueueOwner) String() string {
	return fmt.Sprintf("%s (UID %s, created %s)", o.Name, o.UID, o.CreationTime.UTC().Format(time.RFC3339))
}

// OwnerConflictError tells that a queue belongs to another object.
type OwnerConflictError struct {
	Queue string
	Owner QueueOwner
}

func (e *OwnerConflictError) Error() string {
	return fmt.Sprintf("the queue %s belongs to %s", e.Queue, e.Owner)
}
