package sequence

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// beginRerun starts a finished run again when a new id asks for it.
func (d *decision) beginRerun() {
	if !d.finished() || !RerunWanted(&d.sj.Spec, &d.status) {
		return
	}
	from, err := rerunStart(&d.sj.Spec, &d.status)
	if err != nil {
		d.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonRerunInvalid, err.Error())
		return
	}
	kept := make([]v1alpha1.StepStatus, 0, len(d.status.Steps))
	for i := range d.sj.Spec.Containers[:from] {
		kept = append(kept, *findStep(d.status.Steps, d.sj.Spec.Containers[i].Name))
	}
	d.status.Run++
	d.status.RerunID = d.sj.Spec.Rerun.ID
	d.status.StartTime, d.status.CompletionTime = nil, nil
	d.status.Steps = arrange(&d.sj.Spec, kept)
	d.accept(Validate(d.sj))
}

// rerunAhead reports whether a rerun begins now that the run has ended. Until it has, the
// SequentialJob must not expire.
func (d *decision) rerunAhead() bool {
	return d.finished() && RerunWanted(&d.sj.Spec, &d.status) && RerunError(&d.sj.Spec, &d.status) == nil
}

// RerunWanted reports whether the spec asks for a run that the status has not seen.
func RerunWanted(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) bool {
	return spec.Rerun != nil && spec.Rerun.ID != status.RerunID
}

// RerunError tells why a finished run cannot be run again as the spec asks, nil if it can.
func RerunError(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) error {
	_, err := rerunStart(spec, status)
	return err
}

// rerunStart is the index in containers at which the rerun begins. Every step before it
// keeps its outcome, so it must have one that lets the sequence go on.
func rerunStart(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	from, err := rerunIndex(spec, status)
	if err != nil {
		return 0, err
	}
	for i := range spec.Containers[:from] {
		name := spec.Containers[i].Name
		record := findStep(status.Steps, name)
		if record == nil || !(record.Phase == v1alpha1.StepSucceeded || record.Tolerated) {
			return 0, fmt.Errorf("cannot rerun from step %q: step %q before it has not succeeded", spec.Containers[from].Name, name)
		}
	}
	return from, nil
}

func rerunIndex(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	switch spec.Rerun.From {
	case v1alpha1.RerunFromStart:
		return 0, nil
	case v1alpha1.RerunFromFailed, "":
		return firstFailure(spec, status)
	}
	at := slices.IndexFunc(spec.Containers, func(s v1alpha1.Step) bool { return s.Name == spec.Rerun.From })
	if at < 0 {
		return 0, fmt.Errorf("cannot rerun from step %q: there is no such step", spec.Rerun.From)
	}
	return at, nil
}

// firstFailure is where a run stopped: at the step that failed it, else at the first
// that was not run or whose failure was tolerated, else, when only finally failed, after
// the last.
func firstFailure(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	unfinished := func(s v1alpha1.Step) bool {
		record := findStep(status.Steps, s.Name)
		return record == nil || (record.Phase != v1alpha1.StepSucceeded && !record.Tolerated)
	}
	if at := slices.IndexFunc(spec.Containers, unfinished); at >= 0 {
		return at, nil
	}
	tolerated := func(s v1alpha1.Step) bool { return findStep(status.Steps, s.Name).Tolerated }
	if at := slices.IndexFunc(spec.Containers, tolerated); at >= 0 {
		return at, nil
	}
	for i := range status.Steps {
		if status.Steps[i].Finally && status.Steps[i].Phase == v1alpha1.StepFailed {
			return len(spec.Containers), nil
		}
	}
	return 0, errors.New("cannot rerun from Failed: no step failed; use from: Start or a step's name")
}
