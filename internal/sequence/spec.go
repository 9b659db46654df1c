package sequence

import (
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// observeSpec brings the status's steps in line with a spec that is new or has changed.
func (d *decision) observeSpec() {
	switch {
	case d.status.Run == 0:
		d.beginStatus()
	case d.sj.Generation == d.status.ObservedGeneration:
		return
	case d.finished():
		d.setSpecAccepted(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	default:
		d.acceptChange()
	}
	d.status.ObservedGeneration = d.sj.Generation
}

// beginStatus begins the status: with what an earlier pass has recorded beside the
// finalizer, if one did.
func (d *decision) beginStatus() {
	if recorded := recordedStart(d.sj); recorded != nil {
		d.status = *recorded
	} else {
		d.status.Run = 1
		if d.sj.Spec.Rerun != nil {
			d.status.RerunID = d.sj.Spec.Rerun.ID // there from the beginning: asks for nothing
		}
	}
	d.acceptChange()
}

// RecordedStatus is what is recorded of the run: the status or, as long as none is
// stored, how the run has begun.
func RecordedStatus(sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJobStatus {
	if sj.Status.Run == 0 {
		if recorded := recordedStart(sj); recorded != nil {
			return recorded
		}
	}
	return &sj.Status
}

// recordedStart is the status in the annotation, nil without one. Who writes nonsense
// into it gets a sequence that begins at its first step.
func recordedStart(sj *v1alpha1.SequentialJob) *v1alpha1.SequentialJobStatus {
	recorded := &v1alpha1.SequentialJobStatus{}
	raw := sj.Annotations[v1alpha1.AnnotationFirstStep]
	if raw == "" || json.Unmarshal([]byte(raw), recorded) != nil || recorded.Run != 1 || len(recorded.Steps) != 1 {
		return nil
	}
	if first := recorded.Steps[0]; first.Phase != v1alpha1.StepStarting || first.Run != 1 || first.JobName != jobName(sj, 1, first.Name, first.Attempt) {
		return nil
	}
	return &v1alpha1.SequentialJobStatus{
		ObservedGeneration: recorded.ObservedGeneration,
		Run:                recorded.Run,
		RerunID:            recorded.RerunID,
		StartTime:          recorded.StartTime,
		Steps:              recorded.Steps,
	}
}

// startRecord is what recordedStart reads: the least of the status that must not be lost.
// It is empty once it is written, or not needed.
func (d *decision) startRecord() string {
	active := d.active()
	if d.sj.Status.Run != 0 || active == nil {
		return ""
	}
	if recorded := recordedStart(d.sj); recorded != nil && recorded.Steps[0].JobName == active.JobName {
		return ""
	}
	first := *active
	first.Phase, first.JobUID, first.StartTime = v1alpha1.StepStarting, "", nil
	raw, err := json.Marshal(v1alpha1.SequentialJobStatus{
		ObservedGeneration: d.status.ObservedGeneration,
		Run:                d.status.Run,
		RerunID:            d.status.RerunID,
		StartTime:          d.status.StartTime,
		Steps:              []v1alpha1.StepStatus{first},
	})
	if err != nil { // API types always marshal
		return ""
	}
	return string(raw)
}

// acceptChange takes over a spec that changed while its run goes on: what has started
// is frozen, what is pending follows the new spec.
func (d *decision) acceptChange() {
	if frozen := FrozenViolations(&d.sj.Spec, &d.status); len(frozen) > 0 {
		d.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStartedStepChanged, frozen.ToAggregate().Error())
	} else {
		d.accept(Validate(d.sj))
	}
	d.status.Steps = arrange(&d.sj.Spec, d.status.Steps)
}

func (d *decision) accept(errs field.ErrorList) {
	if len(errs) > 0 {
		d.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonInvalid, errs.ToAggregate().Error())
		return
	}
	d.setSpecAccepted(metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

func (d *decision) setSpecAccepted(status metav1.ConditionStatus, reason, message string) {
	d.setCondition(v1alpha1.ConditionSpecAccepted, status, reason, message)
}

// admitted reports whether the run may make Jobs. Before its first step, every Job is
// tried on the API server: a mistake in the last step shows now, not in an hour.
func (d *decision) admitted() bool {
	if d.begunBefore() {
		d.checkChange()
		return d.plan.Ask == nil
	}
	if d.specRejected() {
		d.reject()
		return false
	}
	if d.sj.Spec.Suspend {
		return true // startNext holds it
	}
	jobs := d.pendingJobs()
	if len(jobs) > 0 && d.in.Answers.DryRun == nil {
		d.plan.Ask = &Question{DryRun: jobs}
		return false
	}
	return len(jobs) == 0 || d.dryRunPassed()
}

// begunBefore reports whether a step of this run has started.
func (d *decision) begunBefore() bool {
	return slices.ContainsFunc(d.status.Steps, func(s v1alpha1.StepStatus) bool {
		return s.Run == d.status.Run
	})
}

// dryRunPassed reports whether the API server would take every Job of the run.
func (d *decision) dryRunPassed() bool {
	next := d.nextPending()
	for i := range d.in.Answers.DryRun.Refusals {
		refusal := &d.in.Answers.DryRun.Refusals[i]
		switch {
		case refusal.Kind == RefusedInvalid:
			d.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStepInvalid, stepMessage(refusal))
			d.reject()
			return false
		case next != nil && refusal.Step == next.Name:
			d.blocked = refusal
			return false
		}
	}
	return true
}

// checkChange tries the pending steps of a spec that changed in mid-run. A step that
// would be refused is told of now; the run goes on until it comes to it.
func (d *decision) checkChange() {
	if d.sj.Generation == RecordedStatus(d.sj).ObservedGeneration || d.specRejected() {
		return
	}
	jobs := d.pendingJobs()
	if len(jobs) == 0 {
		return
	}
	if d.in.Answers.DryRun == nil {
		d.plan.Ask = &Question{DryRun: jobs}
		return
	}
	for i := range d.in.Answers.DryRun.Refusals {
		if refusal := &d.in.Answers.DryRun.Refusals[i]; refusal.Kind == RefusedInvalid {
			d.setSpecAccepted(metav1.ConditionFalse, v1alpha1.ReasonStepInvalid, stepMessage(refusal))
			return
		}
	}
}

func (d *decision) specRejected() bool {
	return meta.IsStatusConditionFalse(d.status.Conditions, v1alpha1.ConditionSpecAccepted)
}

func stepMessage(refusal *Refusal) string {
	return fmt.Sprintf("step %q: %s", refusal.Step, refusal.Message)
}

// reject ends a run before its first step. There is nothing that finally could clean up.
func (d *decision) reject() {
	for i := range d.status.Steps {
		if step := &d.status.Steps[i]; step.Phase == v1alpha1.StepPending {
			step.Phase, step.Reason = v1alpha1.StepSkipped, v1alpha1.ReasonInvalid
		}
	}
	d.finish()
}

// pendingJobs are the Jobs of the steps to come.
func (d *decision) pendingJobs() []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range d.status.Steps {
		step := &d.status.Steps[i]
		if spec := findSpecStep(&d.sj.Spec, step.Name); spec != nil && step.Phase == v1alpha1.StepPending {
			jobs = append(jobs, stepJob(d.sj, spec, d.status.Run, step.Attempt+1))
		}
	}
	return jobs
}

// arrange lists the run's steps: those recorded as started, in their order, then the
// spec's that come after the last of them; first of containers, then of finally.
func arrange(spec *v1alpha1.SequentialJobSpec, recorded []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	steps := make([]v1alpha1.StepStatus, 0, len(spec.Containers)+len(spec.Finally))
	containers := spec.Containers
	if finallyBegun(recorded) {
		containers = nil // too late for more: only those recorded stay
	}
	steps = arrangeSection(steps, containers, recorded, false)
	return arrangeSection(steps, spec.Finally, recorded, true)
}

func finallyBegun(recorded []v1alpha1.StepStatus) bool {
	return slices.ContainsFunc(recorded, func(s v1alpha1.StepStatus) bool {
		return s.Finally && s.Phase != v1alpha1.StepPending
	})
}

func arrangeSection(steps []v1alpha1.StepStatus, section []v1alpha1.Step, recorded []v1alpha1.StepStatus, finally bool) []v1alpha1.StepStatus {
	after := 0
	for _, record := range recorded {
		if record.Finally != finally || record.Phase == v1alpha1.StepPending {
			continue
		}
		steps = append(steps, record)
		if at := slices.IndexFunc(section, func(s v1alpha1.Step) bool { return s.Name == record.Name }); at >= 0 {
			after = max(after, at+1)
		}
	}
	for i := range section[after:] {
		name := section[after+i].Name
		if findStep(steps, name) != nil {
			continue
		}
		pending := v1alpha1.StepStatus{Name: name, Finally: finally, Phase: v1alpha1.StepPending}
		if record := findStep(recorded, name); record != nil && record.Finally == finally {
			pending = *record // a pending step that waits for its next attempt
		}
		steps = append(steps, pending)
	}
	return steps
}

// FrozenViolations tells which steps that have started in the run recorded in the
// status the spec changes, removes, renames or moves.
func FrozenViolations(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) field.ErrorList {
	if status.Run == 0 || status.CompletionTime != nil {
		return nil
	}
	errs := frozenSection(field.NewPath("spec", "containers"), spec.Containers, status, false)
	return append(errs, frozenSection(field.NewPath("spec", "finally"), spec.Finally, status, true)...)
}

func frozenSection(path *field.Path, section []v1alpha1.Step, status *v1alpha1.SequentialJobStatus, finally bool) field.ErrorList {
	var errs field.ErrorList
	at := 0
	for i := range status.Steps {
		record := &status.Steps[i]
		if record.Finally != finally || record.Phase == v1alpha1.StepPending || record.Phase == v1alpha1.StepSkipped {
			continue
		}
		switch {
		case at >= len(section) || section[at].Name != record.Name:
			errs = append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be removed, renamed or moved, and no step can be put before it", record.Name)))
			return errs
		case record.Run == status.Run && hashOf(&section[at]) != record.SpecHash:
			errs = append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be changed; change the steps after it, or wait for the run to end", record.Name)))
		}
		at++
	}
	if !finally && at < len(section) && finallyBegun(status.Steps) && findStep(status.Steps, section[at].Name) == nil {
		errs = append(errs, field.Forbidden(path.Index(at), "finally has started: no step can be added to containers"))
	}
	return errs
}
