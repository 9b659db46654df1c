package decision

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/kstatustest"
)

var setTime = metav1.NewTime(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC))

func objectWithConditions(generation, observedGeneration int64, conditions []metav1.Condition) *v1alpha1.Queue {
	object := &v1alpha1.Queue{}
	object.Generation = generation
	object.Status.ObservedGeneration = observedGeneration
	object.Status.Conditions = conditions
	return object
}

func TestConditionsAreReadByKstatus(t *testing.T) {
	tests := map[string]struct {
		summary Summary
		want    status.Status
		// wantReconciling and wantStalled are the conditions' statuses.
		wantReconciling, wantStalled metav1.ConditionStatus
	}{
		"ready and settled": {
			Summary{Ready: metav1.ConditionTrue, Progress: Settled},
			status.CurrentStatus, metav1.ConditionFalse, metav1.ConditionFalse,
		},
		"ready while it is being changed": {
			Summary{Ready: metav1.ConditionTrue, Progress: InProgress},
			status.InProgressStatus, metav1.ConditionTrue, metav1.ConditionFalse,
		},
		"not ready yet": {
			Summary{Ready: metav1.ConditionFalse, Progress: InProgress},
			status.InProgressStatus, metav1.ConditionTrue, metav1.ConditionFalse,
		},
		"unknown": {
			Summary{Ready: metav1.ConditionUnknown, Progress: InProgress},
			status.InProgressStatus, metav1.ConditionTrue, metav1.ConditionFalse,
		},
		"suspended or stopped": {
			Summary{Ready: metav1.ConditionFalse, Progress: Settled},
			status.InProgressStatus, metav1.ConditionFalse, metav1.ConditionFalse,
		},
		"stuck": {
			Summary{Ready: metav1.ConditionFalse, Progress: Stuck},
			status.FailedStatus, metav1.ConditionFalse, metav1.ConditionTrue,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			var conditions []metav1.Condition
			test.summary.Reason, test.summary.Message = "SomeReason", "some message"
			Set(&conditions, 3, setTime, test.summary)
			kstatustest.AssertKstatus(t, objectWithConditions(3, 3, conditions), test.want)
			kstatustest.AssertKstatus(t, objectWithConditions(4, 3, conditions), status.InProgressStatus)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.ConditionReady:       test.summary.Ready,
				v1alpha1.ConditionReconciling: test.wantReconciling,
				v1alpha1.ConditionStalled:     test.wantStalled,
			} {
				got := meta.FindStatusCondition(conditions, kind)
				if got.Status != want || got.Reason != "SomeReason" || got.Message != "some message" || got.ObservedGeneration != 3 {
					t.Errorf("condition %s is %+v, want status %s", kind, got, want)
				}
			}
		})
	}
}
