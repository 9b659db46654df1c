package agenticsession

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

func TestTheWorstReportOfARunnerIsItsCondition(t *testing.T) {
	reported := decision.True(v1alpha1.ReasonReporting, "")
	unknown := func(reason, message string) decision.State {
		return decision.State{Status: metav1.ConditionUnknown, Reason: reason, Message: message}
	}
	silent, free := unknown(v1alpha1.ReasonActivityUnknown, "no activity"), unknown(v1alpha1.ReasonCostUnknown, "no cost")
	malformed := decision.False(v1alpha1.ReasonResultMalformed, "no JSON")
	for title, row := range map[string]struct {
		reports []decision.State
		want    decision.State
	}{
		"all are there":              {[]decision.State{reported, reported}, reported},
		"one is missing":             {[]decision.State{reported, silent}, silent},
		"two are missing":            {[]decision.State{silent, reported, free}, unknown(v1alpha1.ReasonActivityUnknown, "no activity; no cost")},
		"one is missing, one broken": {[]decision.State{silent, malformed}, malformed},
	} {
		if got := runnerReporting(row.reports); got != row.want {
			t.Errorf("%s: %+v, want %+v", title, got, row.want)
		}
	}
}
