package jobreport

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// decideAfterExport decides on the same scan as before, after the Report was written or not.
func decideAfterExport(before v1alpha1.JobReportStatus, failure *Failure, now time.Time) Decision {
	aggregator := NewAggregator(50)
	aggregator.Add(zombieEntry("a", 0))
	return decideOn(before, Scan{Jobs: aggregator, StartTime: testTime, Duration: time.Second}, &ExportResult{Failure: failure}, now)
}

func TestAReportStatesWhetherItsFindingsWereExported(t *testing.T) {
	missing := &Failure{v1alpha1.ReasonCRDMissing, "the kind does not exist"}
	forbidden := &Failure{v1alpha1.ReasonForbidden, "not allowed"}
	event := func(kind, reason, message string) []decision.Event {
		return []decision.Event{{Type: kind, Reason: reason, Action: "Scan", Message: message}}
	}
	status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	for _, step := range []struct {
		name    string
		failure *Failure
		want    WriteReason
		ready   metav1.ConditionStatus
		events  []decision.Event
	}{
		{"missing", missing, WriteChanged, metav1.ConditionFalse, event("Warning", "OpenReportsFailed", "CRDMissing: the kind does not exist")},
		{"missing again", missing, WriteUnchanged, metav1.ConditionFalse, nil},
		{"installed but forbidden", forbidden, WriteChanged, metav1.ConditionFalse, event("Warning", "OpenReportsFailed", "Forbidden: not allowed")},
		{"written", nil, WriteChanged, metav1.ConditionTrue, event("Normal", "OpenReportsRecovered", "the OpenReports Report has the findings")},
		{"written again", nil, WriteUnchanged, metav1.ConditionTrue, nil},
	} {
		d := decideAfterExport(status, step.failure, testTime.Add(time.Hour))
		if d.Write != step.want {
			t.Errorf("%s: %s, want %s", step.name, d.Write, step.want)
		}
		if diff := cmp.Diff(step.events, d.Events); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.name, diff)
		}
		if !meta.IsStatusConditionPresentAndEqual(d.Status.Conditions, v1alpha1.ConditionOpenReportsReady, step.ready) {
			t.Errorf("%s: %+v", step.name, d.Status.Conditions)
		}
		if diff := cmp.Diff(status.Findings, d.Status.Findings); diff != "" {
			t.Errorf("%s: the findings changed (-want +got):\n%s", step.name, diff)
		}
		if d.Export {
			t.Errorf("%s: the export is repeated", step.name)
		}
		status = d.Status
	}
	if next := scanEntries(status, testTime.Add(time.Hour), 50, zombieEntry("a", 0)); !cmp.Equal(next.Conditions, status.Conditions) {
		t.Error("a scan changes the condition")
	}
}

func TestDisablingTheExportRemovesItsCondition(t *testing.T) {
	exported := decideAfterExport(scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0)), nil, testTime)
	aggregator := NewAggregator(50)
	aggregator.Add(zombieEntry("a", 0))
	stored := &v1alpha1.JobReport{Status: exported.Status}
	decision := Decide(Observation{Report: stored, Scan: Scan{Jobs: aggregator, StartTime: testTime}, Now: testTime})
	if meta.FindStatusCondition(decision.Status.Conditions, v1alpha1.ConditionOpenReportsReady) != nil {
		t.Errorf("the condition remains: %+v", decision.Status.Conditions)
	}
	if meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionOpenReportsReady) == nil {
		t.Error("the stored status was changed")
	}
	if decision.Events != nil || decision.Export {
		t.Errorf("events %v, export %t", decision.Events, decision.Export)
	}
}

func TestTheFirstExportEmitsNoEvent(t *testing.T) {
	before := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	if got := decideAfterExport(before, nil, testTime).Events; got != nil {
		t.Errorf("events %v", got)
	}
}

func TestNothingIsExportedBeforeTheFirstSuccessfulScan(t *testing.T) {
	failed := decideOn(v1alpha1.JobReportStatus{}, Scan{Failure: &Failure{v1alpha1.ReasonTimeout, "slow"}}, nil, testTime)
	scanned := decideOn(v1alpha1.JobReportStatus{}, Scan{Jobs: NewAggregator(1), StartTime: testTime}, nil, testTime)
	if failed.Export || !scanned.Export {
		t.Errorf("export after a failure %t, after a scan %t", failed.Export, scanned.Export)
	}
}
