package jobreport

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/kstatustest"
)

// The rows of docs/conditions.md for JobReport.
func TestConditionsOfAJobReportAreReadByKstatus(t *testing.T) {
	scanned := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	truncated := scanEntries(v1alpha1.JobReportStatus{}, testTime, 0, zombieEntry("a", 0))
	failedFor := func(reason string) v1alpha1.JobReportStatus {
		return statusAfterFailure(scanned, Failure{reason, "what happened"}, testTime)
	}
	tests := map[string]struct {
		status                      v1alpha1.JobReportStatus
		ready, reconciling, stalled metav1.ConditionStatus
		wantReason                  string
		want                        status.Status
	}{
		"scanned, complete":           {scanned, "True", "False", "False", "Scanned", status.CurrentStatus},
		"scanned, truncated":          {truncated, "True", "False", "False", "Scanned", status.CurrentStatus},
		"the list timed out":          {failedFor(v1alpha1.ReasonTimeout), "False", "True", "False", "Timeout", status.InProgressStatus},
		"the list expired":            {failedFor(v1alpha1.ReasonExpired), "False", "True", "False", "Expired", status.InProgressStatus},
		"the list was interrupted":    {failedFor(v1alpha1.ReasonPartialList), "False", "True", "False", "PartialList", status.InProgressStatus},
		"the list failed":             {failedFor(v1alpha1.ReasonListFailed), "False", "True", "False", "ListFailed", status.InProgressStatus},
		"a permission is missing":     {failedFor(v1alpha1.ReasonForbidden), "False", "False", "True", "Forbidden", status.FailedStatus},
		"the namespace doesn't exist": {failedFor(v1alpha1.ReasonNamespaceNotFound), "False", "False", "True", "NamespaceNotFound", status.FailedStatus},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			report := &v1alpha1.JobReport{Status: test.status}
			report.Generation = 1
			kstatustest.AssertKstatus(t, report, test.want)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.ConditionReady: test.ready, v1alpha1.ConditionReconciling: test.reconciling, v1alpha1.ConditionStalled: test.stalled,
			} {
				got := meta.FindStatusCondition(test.status.Conditions, kind)
				if got.Status != want || got.Reason != test.wantReason {
					t.Errorf("%s is %s for reason %s, want %s for reason %s", kind, got.Status, got.Reason, want, test.wantReason)
				}
			}
		})
	}
}

func TestAFailureThatDiffersOnlyInNumbersIsNoChange(t *testing.T) {
	for name, row := range map[string]struct {
		first, second Failure
		want          WriteReason
	}{
		"other port": {
			Failure{"ListFailed", "read tcp 10.0.0.2:51234->10.0.0.1:443: read: connection reset by peer"},
			Failure{"ListFailed", "read tcp 10.0.0.2:40022->10.0.0.1:443: read: connection reset by peer"},
			WriteUnchanged,
		},
		"other time": {
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:00:00Z is after 2026-02-28T00:00:00Z"},
			Failure{"ListFailed", "certificate has expired: current time 2026-03-01T12:05:00Z is after 2026-02-28T00:00:00Z"},
			WriteUnchanged,
		},
		"other stream": {
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=199, debug=""`},
			Failure{"PartialList", `http2: server sent GOAWAY; LastStreamID=7, debug=""`},
			WriteUnchanged,
		},
		"other cause":  {Failure{"ListFailed", "connect: connection refused"}, Failure{"ListFailed", "connect: no route to host"}, WriteChanged},
		"other reason": {Failure{"ListFailed", "connect: connection refused"}, Failure{"PartialList", "connect: connection refused"}, WriteChanged},
	} {
		t.Run(name, func(t *testing.T) {
			before := statusAfterFailure(v1alpha1.JobReportStatus{}, row.first, testTime)
			after := statusAfterFailure(before, row.second, testTime.Add(time.Minute))
			if got := compareStatus("a", &before, &after); got != row.want {
				t.Errorf("%s, want %s: %+v", got, row.want, after.Conditions)
			}
		})
	}
}
