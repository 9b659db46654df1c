package decision

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestATruncatedMessageIsValidTextWithinItsLimit(t *testing.T) {
	for title, test := range map[string]struct {
		message, want string
	}{
		"a message at the limit":            {"0123456789", "0123456789"},
		"a longer message is marked":        {"0123456789a", "0123456…"},
		"a character is not split":          {"012345ää6789", "012345…"},
		"invalid bytes count as replaced":   {"01234\xff6789a", "01234…"},
		"an invalid byte alone is replaced": {"0\xff1", "0\uFFFD1"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, TruncateMessage(test.message, 10))
		})
	}
}

func TestJobsOfARunHaveTheLabelOfTheScheduleThatControlsIt(t *testing.T) {
	schedule := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly", UID: "1"}}
	for title, row := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"a Schedule":                          {ControllerReferences("Schedule", schedule), "nightly"},
		"another controller":                  {ControllerReferences("SequentialJob", schedule), ""},
		"a Schedule that does not control it": {[]metav1.OwnerReference{{APIVersion: "yardmaster.dev/v1alpha1", Kind: "Schedule", Name: "nightly"}}, ""},
		"no owner":                            {nil, ""},
	} {
		labels := map[string]string{}
		SetScheduleLabel(labels, &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelSchedule: "forged"}, OwnerReferences: row.owners}})
		assert.Equal(t, title, row.want, labels[v1alpha1.LabelSchedule])
	}
}

// Each other class is handled or retried.
func TestRefusalsAreThoseThatOnlyAChangeOfAnObjectResolves(t *testing.T) {
	refused := Refusal{Kind: "Pod", Name: "a", Step: "s"}
	for title, row := range map[string]struct {
		err  error
		want Class
	}{
		"invalid":           {apierrors.NewBadRequest(" unknown field\n"), Invalid},
		"denied":            {forbidden(`violates PodSecurity "restricted:latest"`), PolicyDenied},
		"no room in quota":  {forbidden("exceeded quota: pods"), QuotaExceeded},
		"no ServiceAccount": {forbidden("error looking up service account a/b"), ServiceAccountMissing},
		"no permission":     {forbidden("other"), None},
		"conflict":          {apierrors.NewConflict(pods, "a", nil), None},
		"unavailable":       {errors.New("connection refused"), None},
		"no error":          {nil, None},
	} {
		var want *Refusal
		if row.want != None {
			want = &Refusal{Class: row.want, Kind: "Pod", Name: "a", Step: "s", Message: row.err.Error()}
		}
		if title == "invalid" {
			want.Message = "unknown field"
		}
		assert.Equal(t, title, want, AsRefusal(row.err, refused))
	}
	want := &Refusal{AlreadyExists, "Pod", "a", "s", "Pod a already exists and does not belong to this Queue; delete it"}
	require.Equal(t, want, NameTaken(refused, "Queue"))
}

func TestADeletionWasRequestedItsGracePeriodBeforeItsTime(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(100, 0))
	for grace, want := range map[int64]int64{0: 100, 30: 70} {
		if got := DeletionRequestTime(&metav1.ObjectMeta{DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: &grace}); got.Unix() != want {
			t.Errorf("grace period %d: at %d, want %d", grace, got.Unix(), want)
		}
	}
}

func TestATimerDecidesAgainAtTheEarliestDueTime(t *testing.T) {
	now := time.Unix(100, 0)
	for _, earlier := range []time.Duration{0, time.Second, time.Hour} {
		for _, left := range []time.Duration{-time.Minute, 0, 1, time.Minute} {
			timer := Timer{Now: now, RequeueAfter: earlier}
			reached, want := timer.HasReached(now.Add(left)), earlier
			if left > 0 {
				want = Earliest(earlier, max(left, time.Millisecond))
			}
			if reached != (left <= 0) || timer.RequeueAfter != want {
				t.Errorf("due in %s, and again after %s: reached %t, again after %s, want %s", left, earlier, reached, timer.RequeueAfter, want)
			}
		}
	}
}

func TestBackoffGrowsUpToItsLimit(t *testing.T) {
	for _, test := range []struct {
		retry  v1alpha1.Retry
		failed int32
		want   time.Duration
	}{
		{v1alpha1.Retry{}, 0, 10 * time.Second},
		{v1alpha1.Retry{}, 3, 80 * time.Second},
		{v1alpha1.Retry{}, 99, 10 * time.Minute},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(24 * time.Hour), MaxBackoff: v1alpha1.NewDuration(24 * time.Hour)}, 99, 24 * time.Hour},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Minute), MaxBackoff: v1alpha1.NewDuration(30 * time.Second)}, 0, 30 * time.Second},
		{v1alpha1.Retry{Backoff: v1alpha1.NewDuration(time.Hour)}, 3, time.Hour},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1.5"))}, 2, 22500 * time.Millisecond},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("1"))}, 99, 10 * time.Second},
		{v1alpha1.Retry{Factor: new(v1alpha1.Number("10"))}, 99, 10 * time.Minute},
	} {
		assert.Equal(t, fmt.Sprintf("%+v after %d failures", test.retry, test.failed), test.want, RetryBackoff(&test.retry, test.failed))
	}
}

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
