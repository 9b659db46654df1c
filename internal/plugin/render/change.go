package render

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change is a line about a change of an object.
type Change struct {
	// Time is when it happened, as the object's status says; zero if it does not say.
	Time time.Time
	Text string
}

// timeOf returns the zero time for nil.
func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
