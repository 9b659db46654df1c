package kube

import (
	"fmt"

	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
)

// AsRefusal returns the refusal that an error of writing an object means, or the error if the write
// may succeed later without another decision. Both are nil without an error. In a terminating
// namespace the error is ErrStale: nothing can be created there, and the owner is about to be deleted.
func AsRefusal(err error, refused core.Refusal) (*core.Refusal, error) {
	if refusal := core.AsRefusal(err, refused); refusal != nil || err == nil {
		return refusal, nil
	}
	if apierror.ClassOf(err) == apierror.NamespaceTerminating {
		return nil, ErrStale
	}
	return nil, fmt.Errorf("writing %s %s: %w", refused.Kind, refused.Name, err)
}
