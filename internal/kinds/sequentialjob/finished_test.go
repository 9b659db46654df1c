package sequentialjob

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestFinishedConditionsAreThoseOfTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	want := func(when string, available, failed, finished bool) {
		t.Helper()
		for kind, want := range map[string]bool{
			v1alpha1.ConditionAvailable: available, v1alpha1.ConditionFailed: failed,
		} {
			condition := meta.FindStatusCondition(s.sj.Status.Conditions, kind)
			if condition == nil || (condition.Status == "True") != want {
				t.Errorf("%s: condition %+v, want %s to be %t", when, condition, kind, want)
			}
		}
		if got := s.sj.Status.CompletionTime != nil; got != finished {
			t.Errorf("%s: has a completionTime: %t, want %t", when, got, finished)
		}
	}
	want("while it runs", false, false, false)
	s.failStep("build")
	want("while finally runs", false, false, false)
	s.succeedStep("cleanup")
	want("after a failure", false, true, true)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "1"}, From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	want("in a rerun", false, false, false)
	s.succeedStep("build")
	s.succeedStep("cleanup")
	want("after success", true, false, true)
}
