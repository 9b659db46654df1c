package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestAReportTellsWhetherItsFindingsAreInAnOpenReportToo(t *testing.T) {
	missing := &ScanFailure{v1alpha1.ReasonCRDMissing, "there is no such kind"}
	forbidden := &ScanFailure{v1alpha1.ReasonForbidden, "you may not"}
	status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, zombieEntry("a", 0))
	for _, step := range []struct {
		name    string
		failure *ScanFailure
		want    WriteDecision
		ready   metav1.ConditionStatus
		events  []Event
	}{
		{"missing", missing, DecisionChanged, metav1.ConditionFalse, []Event{{"Warning", "OpenReportsFailed", "CRDMissing: there is no such kind"}}},
		{"still missing", missing, DecisionUnchanged, metav1.ConditionFalse, nil},
		{"there, and forbidden", forbidden, DecisionChanged, metav1.ConditionFalse, []Event{{"Warning", "OpenReportsFailed", "Forbidden: you may not"}}},
		{"written", nil, DecisionChanged, metav1.ConditionTrue, []Event{{"Normal", "OpenReportsRecovered", "the findings are in a Report too"}}},
		{"still written", nil, DecisionUnchanged, metav1.ConditionTrue, nil},
	} {
		next := StatusAfterExport(status, step.failure, testTime.Add(time.Hour))
		if got := CompareStatus("a", &status, &next); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
		if diff := cmp.Diff(step.events, Events(&status, &next)); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.name, diff)
		}
		if !meta.IsStatusConditionPresentAndEqual(next.Conditions, v1alpha1.ConditionOpenReportsReady, step.ready) {
			t.Errorf("%s: %+v", step.name, next.Conditions)
		}
		if next.ContentHash != status.ContentHash {
			t.Errorf("%s: it counts as another finding", step.name)
		}
		status = next
	}

	if next := scanEntries(status, testTime.Add(time.Hour), 50, zombieEntry("a", 0)); !cmp.Equal(next.Conditions, status.Conditions) {
		t.Error("a scan makes it forget")
	}
	off := StatusWithoutExport(status)
	if meta.FindStatusCondition(off.Conditions, v1alpha1.ConditionOpenReportsReady) != nil || len(off.Conditions) != 3 {
		t.Errorf("switched off, it has %+v", off.Conditions)
	}
	if len(status.Conditions) != 4 {
		t.Error("what was stored is changed")
	}
	if got := Events(&status, &off); got != nil {
		t.Errorf("switched off, it tells %v", got)
	}
}

func TestTheFirstOpenReportIsNoNews(t *testing.T) {
	before := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50)
	after := StatusAfterExport(before, nil, testTime)
	if got := Events(&before, &after); got != nil {
		t.Errorf("events %v", got)
	}
}
