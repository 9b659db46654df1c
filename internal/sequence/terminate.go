package sequence

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// terminate ends what runs of a SequentialJob that is being deleted. The finalizer goes
// when a live list shows that nothing does; all else is the garbage collector's.
func (d *decision) terminate() {
	if !slices.Contains(d.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		return
	}
	if slices.Contains(d.sj.Finalizers, metav1.FinalizerOrphanDependents) {
		return // the user wants the Jobs kept: let go of them
	}
	if !d.in.Answers.Listed {
		d.plan.Ask = &Question{AllJobs: true}
		return
	}
	running := false
	for _, job := range d.in.Jobs {
		if !IsTerminal(job) {
			running = true
			d.delete(job)
		}
	}
	if !running {
		d.plan.Terminated = true
		return
	}
	d.plan.Finalizer = true
	d.status.Phase = v1alpha1.PhaseTerminating
	d.setCondition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonTerminating, "the running step is being ended")
}
