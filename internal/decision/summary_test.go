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
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for title, test := range map[string]struct {
		summary Summary
		want    status.Status
		// wantReconciling and wantStalled are the conditions' statuses.
		wantReconciling, wantStalled metav1.ConditionStatus
	}{
		"ready and settled":               {Summary{Ready: yes, Progress: Settled}, status.CurrentStatus, no, no},
		"ready while it is being changed": {Summary{Ready: yes, Progress: InProgress}, status.InProgressStatus, yes, no},
		"not ready yet":                   {Summary{Ready: no, Progress: InProgress}, status.InProgressStatus, yes, no},
		"unknown":                         {Summary{Ready: unknown, Progress: InProgress}, status.InProgressStatus, yes, no},
		"suspended or stopped":            {Summary{Ready: no, Progress: Settled}, status.InProgressStatus, no, no},
		"stuck":                           {Summary{Ready: no, Progress: Stuck}, status.FailedStatus, no, yes},
	} {
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
