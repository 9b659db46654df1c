package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestPoolIsReconciledWhenItsQueueBecomesReady(t *testing.T) {
	tests := map[string]struct {
		before, after metav1.ConditionStatus
		want          bool
	}{
		"created on its broker":    {"", metav1.ConditionTrue, true},
		"ready again":              {metav1.ConditionFalse, metav1.ConditionTrue, true},
		"still ready, other stats": {metav1.ConditionTrue, metav1.ConditionTrue, false},
		"no longer ready":          {metav1.ConditionTrue, metav1.ConditionFalse, false},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := becomesUsable.Update(event.UpdateEvent{ObjectOld: queueWithReady(test.before), ObjectNew: queueWithReady(test.after)}); got != test.want {
				t.Errorf("reconciled: %t, want %t", got, test.want)
			}
		})
	}
}

func TestPoolIsReconciledWhenItsQueueIsProvenToOwnItsQueue(t *testing.T) {
	unproven, proven := &v1alpha1.Queue{}, &v1alpha1.Queue{}
	proven.Status.Name, proven.Status.Effective = "mail", &v1alpha1.QueueEffective{}
	proven.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	if !becomesUsable.Update(event.UpdateEvent{ObjectOld: unproven, ObjectNew: proven}) {
		t.Error("the pool waits")
	}
	if becomesUsable.Update(event.UpdateEvent{ObjectOld: proven, ObjectNew: proven}) {
		t.Error("the pool is reconciled after each change of the Queue")
	}
}

func queueWithReady(ready metav1.ConditionStatus) *v1alpha1.Queue {
	q := &v1alpha1.Queue{}
	if ready != "" {
		q.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}}
	}
	return q
}
