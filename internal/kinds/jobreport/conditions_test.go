package jobreport

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision/decisiontest"
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
			decisiontest.AssertKstatus(t, report, test.want)
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
