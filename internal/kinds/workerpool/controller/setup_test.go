package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestPoolIsReconciledWhenItsQueueBecomesReadyOrIsProvenToOwnItsQueue(t *testing.T) {
	proven := &v1alpha1.Queue{}
	proven.Status.Name, proven.Status.Effective = "mail", &v1alpha1.QueueEffective{}
	proven.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced}}
	ready, notReady := &v1alpha1.Queue{}, &v1alpha1.Queue{}
	ready.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	notReady.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	for title, test := range map[string]struct {
		before, after *v1alpha1.Queue
		want          bool
	}{
		"created on its broker":       {&v1alpha1.Queue{}, ready, true},
		"ready again":                 {notReady, ready, true},
		"still ready, other stats":    {ready, ready, false},
		"no longer ready":             {ready, notReady, false},
		"proven to own its queue":     {&v1alpha1.Queue{}, proven, true},
		"still proven, other changes": {proven, proven, false},
	} {
		require.True(t, becomesUsable.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}) == test.want, "%s: not %t", title, test.want)
	}
}
