package sequentialjob

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestFinishedConditionsAreThoseOfTheRun(t *testing.T) {
	s := startRun(t, testbuilder.SequentialJob("a", "ns").Step("build").Finally("cleanup"))
	want := func(when string, complete, failed, finished bool) {
		t.Helper()
		for kind, want := range map[string]bool{
			v1alpha1.ConditionComplete: complete, v1alpha1.ConditionFailed: failed, v1alpha1.ConditionFinished: finished,
		} {
			condition := meta.FindStatusCondition(s.sj.Status.Conditions, kind)
			if condition == nil || (condition.Status == "True") != want {
				t.Errorf("%s: condition %+v, want %s to be %t", when, condition, kind, want)
			}
		}
	}
	want("while it runs", false, false, false)
	s.failStep("build")
	want("while finally runs", false, false, false)
	s.succeedStep("cleanup")
	want("after a failure", false, true, true)
	s.changeSpec(func(spec *v1alpha1.SequentialJobSpec) {
		spec.Rerun = &v1alpha1.Rerun{ID: "1", From: v1alpha1.RerunFromStart}
	})
	s.reconcile()
	want("in a rerun", false, false, false)
	s.succeedStep("build")
	s.succeedStep("cleanup")
	want("after success", true, false, true)
}
