package broker

import (
	"fmt"
	"time"
)

// QueueOwner is the object that a queue belongs to.
type QueueOwner struct {
	// UID is unique across clusters.
	UID string
	// Name is namespace/name, for messages.
	Name string
	// CreationTime of the object.
	CreationTime time.Time
}

// HasPrecedenceOver reports whether this owner keeps a queue that both claim: the older one
// does, and of two of the same age the one with the smaller UID. Both come to the same
// result.
func (o QueueOwner) HasPrecedenceOver(other QueueOwner) bool {
	if !o.CreationTime.Equal(other.CreationTime) {
		return o.CreationTime.Before(other.CreationTime)
	}
	return o.UID < other.UID
}

func (o QueueOwner) String() string {
	return fmt.Sprintf("%s (UID %s, created %s)", o.Name, o.UID, o.CreationTime.UTC().Format(time.RFC3339))
}

// OwnerConflictError means that a queue belongs to another owner.
type OwnerConflictError struct {
	Queue string
	Owner QueueOwner
}

func (e *OwnerConflictError) Error() string {
	return fmt.Sprintf("the queue %s belongs to %s", e.Queue, e.Owner)
}
