package kube

import (
	"fmt"

	"github.com/yardmaster/yardmaster/internal/decision"
)

// AsRefusal converts an error of writing an object to a refusal, or returns the error if the write may succeed later without
// another decision. Both are nil without an error. In a terminating namespace the error is ErrStale: nothing can be created
// there, and the owner is about to be deleted.
func AsRefusal(err error, refused decision.Refusal) (*decision.Refusal, error) {
	if refusal := decision.AsRefusal(err, refused); refusal != nil || err == nil {
		return refusal, nil
	}
	if decision.ClassOf(err) == decision.NamespaceTerminating {
		return nil, ErrStale
	}
	return nil, fmt.Errorf("writing %s %s: %w", refused.Kind, refused.Name, err)
}
