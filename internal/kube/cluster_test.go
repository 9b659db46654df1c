package kube

import (
	"testing"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// With the UID of kube-system as value, an operator that may not read it has the same queues as one that may.
func TestAnIDOfTheClusterThatIsGivenNeedsNoPermission(t *testing.T) {
	got, err := NewClusterID("uid").Get(t.Context(), nil)
	if want := broker.ClusterID("uid"); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
