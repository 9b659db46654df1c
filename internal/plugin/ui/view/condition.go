package view

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is a condition of an object.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

func newConditions(conditions []metav1.Condition) []Condition {
	var all []Condition
	for i := range conditions {
		c := &conditions[i]
		all = append(all, Condition{cleanLine(c.Type), string(c.Status), cleanLine(c.Reason), cleanLine(c.Message), c.LastTransitionTime.Time})
	}
	return all
}
