package sequentialjob

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
)

const podKind = "Pod"

// run is the run as the spec wants it, before the Jobs of its steps are known.
type run struct {
	// status has the steps and the parameters of the run, and whether the spec is accepted.
	status v1alpha1.SequentialJobStatus
	// proceeds is true if steps may start and continue.
	proceeds bool
	// blocked is why the first step cannot start; nil if it can.
	blocked *decision.Problem
	notes
}

// newRun observes a new or changed spec: started steps are immutable, the others follow the spec. A finished run starts again if the
// spec requests a rerun.
func newRun(f *facts) run {
	r := run{status: *caughtUp(f), notes: f.newNotes()}
	status := &r.status
	isChanged := f.SequentialJob.Generation != status.ObservedGeneration
	if status.Run == 0 {
		status.Run, isChanged = 1, true
		if f.spec.Rerun != nil {
			status.RerunID = f.spec.Rerun.ID // an id that is set at creation requests nothing
		}
	}
	if isChanged && activeStep(status.Steps) != nil && !f.Answers.HasAllJobs {
		r.question = &Question{AllJobs: true} // a step that started with the earlier spec may be known by its Job only
		return r
	}
	if isChanged {
		status.ObservedGeneration = f.SequentialJob.Generation
		if status.Run == 1 && !hasRunStarted(status) {
			status.Parameters = runParameters(f.spec, nil)
		}
		accepted := specValidity(f.SequentialJob)
		if !IsFinished(status) {
			if violations := ImmutabilityViolations(nil, f.spec, status); len(violations) > 0 {
				accepted = decision.False(v1alpha1.ReasonStartedStepChanged, violations.ToAggregate().Error())
			}
			status.Steps = mergeSteps(f.spec, status.Steps)
		}
		f.setCondition(status, v1alpha1.ConditionSpecAccepted, accepted)
	}
	if IsFinished(status) && IsRerunRequested(f.spec, status) {
		r = r.again(f)
	}
	if IsFinished(&r.status) {
		return r
	}
	wasSuspended := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSuspended)
	if wasSuspended && !f.spec.Suspend && status.StartTime != nil && !needsApproval(nextStep(status.Steps)) {
		r.status.StartTime = f.now.DeepCopy() // the run's deadline restarts when the run is resumed
	}
	return r.admit(f)
}

// again returns the requested rerun of a finished run, or why the run cannot be rerun.
func (r run) again(f *facts) run {
	from, err := rerunStart(f.spec, &r.status)
	if err != nil {
		f.setCondition(&r.status, v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonRerunInvalid, err.Error()))
		return r
	}
	if warning := RerunWarning(f.spec, &r.status); warning != "" {
		r.events = append(r.events, decision.WarningEvent(v1alpha1.EventRerunStarted, actionRun, warning))
	}
	kept := make([]v1alpha1.StepStatus, 0, len(r.status.Steps))
	for i := range f.spec.Containers[:from] {
		kept = append(kept, *findStep(r.status.Steps, f.spec.Containers[i].Name))
	}
	r.status.Run++
	r.status.RerunID, r.status.Approval, r.status.Results = f.spec.Rerun.ID, nil, nil
	r.status.StartTime, r.status.CompletionTime, r.status.DeadlineExceededTime = nil, nil, nil
	r.status.Steps, r.status.Parameters = mergeSteps(f.spec, kept), runParameters(f.spec, f.spec.Rerun)
	f.setCondition(&r.status, v1alpha1.ConditionSpecAccepted, specValidity(f.SequentialJob))
	return r
}

// admit decides whether steps of the run may start and continue. Before the first step, all Jobs and their Pods are
// created in a dry run, so that a mistake in the last step is reported at once. The same happens with waiting steps
// after a change of the spec during the run or while it is suspended: a step that would be refused is reported, and the
// run continues until this step.
func (r run) admit(f *facts) run {
	status := &r.status
	for i := range status.Steps { // the last decision wrote refusals of Pods into the steps
		if step := &status.Steps[i]; step.Phase == v1alpha1.StepPending && step.Reason == v1alpha1.ReasonPodNotCreated {
			step.Reason, step.Message = "", ""
		}
	}
	mayStart := !hasRunStarted(status) && !f.spec.Suspend
	if isSpecRejected(status) && mayStart {
		return r.reject(f)
	}
	r.proceeds = true
	if isSpecRejected(status) || !mayStart && f.SequentialJob.Generation == f.SequentialJob.Status.ObservedGeneration {
		return r // no step starts while the run is suspended
	}
	next, jobs := nextStep(status.Steps), waitingJobs(f.with(status))
	if len(jobs) == 0 {
		return r
	}
	for i := 0; i < len(jobs) && mayStart; i++ {
		if r.blocked = forbiddenImage(f, jobs[i]); r.blocked != nil {
			r.proceeds = false
			return r
		}
	}
	if f.Answers.DryRun == nil {
		startsAtOnce := false
		if next != nil {
			first := findStepSpec(f.spec, next.Name)
			startsAtOnce = first != nil && !first.Options().RequireApproval && first.Options().When == ""
		}
		r.question = &Question{DryRun: jobs, FirstFollows: mayStart && startsAtOnce}
		return r
	}
	return r.admitAfterDryRun(f, mayStart)
}

func (r run) admitAfterDryRun(f *facts, mayStart bool) run {
	status, next, warning := &r.status, nextStep(r.status.Steps), ""
	for i := range f.Answers.DryRun.Refusals {
		refusal := &f.Answers.DryRun.Refusals[i]
		if !canRetry(refusal) {
			message := fmt.Sprintf("step %q: %s", refusal.Step, refusal.Message)
			f.setCondition(status, v1alpha1.ConditionSpecAccepted, decision.False(v1alpha1.ReasonStepInvalid, message))
			r.blocked = nil
			if mayStart {
				return r.reject(f)
			}
			return r
		}
		if refusal.Kind == podKind && warning == "" {
			warning = fmt.Sprintf("step %q: %s", refusal.Step, podProblemMessage(refusal))
		}
		// A refusal keeps the run from starting if it is of the next step, or if a policy refuses the Pod of any step,
		// which does not change by itself. A quota may have room for a later step, and an earlier step may create its
		// ServiceAccount.
		isOfNext := next != nil && refusal.Step == next.Name
		isLasting := refusal.Kind == podKind && refusal.Class == decision.PolicyDenied
		if mayStart && r.blocked == nil && (isOfNext || isLasting) {
			r.blocked = refusalProblem(f, refusal)
			if step := findStep(status.Steps, refusal.Step); r.blocked.Reason == v1alpha1.ReasonPodNotCreated && step != nil {
				step.Reason, step.Message = r.blocked.Reason, decision.TruncateMessage(podProblemMessage(refusal), maxMessageBytes)
			}
		}
	}
	f.setCondition(status, v1alpha1.ConditionSpecAccepted, decision.True(v1alpha1.ReasonAccepted, warning))
	r.proceeds = r.blocked == nil
	return r
}

// reject finishes the run before its first step. Steps with finally are skipped too, because there is nothing to clean up.
func (r run) reject(f *facts) run {
	skipWaitingSteps(r.status.Steps, v1alpha1.ReasonInvalid, func(string) bool { return false })
	r.status.CompletionTime, r.proceeds = f.now.DeepCopy(), false
	return r
}

// forbiddenImage returns why a Policy does not allow an image of a step's Job; nil if it does. The step then waits, because a
// Policy may change.
func forbiddenImage(f *facts, job *batchv1.Job) *decision.Problem {
	if err := policy.CheckImages(&job.Spec.Template.Spec, &f.Policies); err != nil {
		return &decision.Problem{Reason: v1alpha1.ReasonImageNotAllowed, Message: fmt.Sprintf("step %q: %s", job.Labels[v1alpha1.LabelStep], err)}
	}
	return nil
}

// refusalProblem returns why a Job cannot be created, or why the run cannot start because a Pod was refused in a dry run.
func refusalProblem(f *facts, refusal *decision.Refusal) *decision.Problem {
	problem := &decision.Problem{Reason: v1alpha1.ReasonQuotaExceeded, Message: refusal.Message}
	switch {
	case refusal.Class == decision.AlreadyExists:
		problem.Reason = v1alpha1.ReasonNameTaken
	case refusal.Kind == podKind:
		problem.Reason = v1alpha1.ReasonPodNotCreated
		problem.Message = fmt.Sprintf("step %q: %s; remove the cause, or correct the step", refusal.Step, podProblemMessage(refusal))
	case refusal.Class == decision.QuotaExceeded && strings.Contains(refusal.Message, "jobs.batch"):
		finished := 0
		for _, job := range f.Jobs {
			if IsTerminal(job) {
				finished++
			}
		}
		if finished > 0 {
			problem.Message = fmt.Sprintf("%d finished Jobs of this SequentialJob count too: set spec.jobHistoryLimit; %s", finished, refusal.Message)
		}
	}
	return problem
}

func podProblemMessage(refusal *decision.Refusal) string {
	return "its Pod was refused in a dry run: " + refusal.Message
}

// specValidity returns the condition SpecAccepted of a spec that no started step forbids to change.
func specValidity(sj *v1alpha1.SequentialJob) decision.State {
	if errs := Validate(sj); len(errs) > 0 {
		return decision.False(v1alpha1.ReasonInvalid, errs.ToAggregate().Error())
	}
	return decision.True(v1alpha1.ReasonAccepted, "")
}

func isSpecRejected(status *v1alpha1.SequentialJobStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionSpecAccepted)
}

func startedStepChanged(at int, step string) *field.Error {
	return field.Forbidden(field.NewPath("spec", "containers").Index(at),
		fmt.Sprintf("step %q has started: it cannot be changed; change later steps, or wait until the run has finished", step))
}

// isSpecInvalid reports whether the spec cannot be used, not only for a started step.
func isSpecInvalid(status *v1alpha1.SequentialJobStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSpecAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonStartedStepChanged
}

// mergeSteps returns the run's steps: the recorded steps that have started, then the steps of the spec that follow the
// last started step.
func mergeSteps(spec *v1alpha1.SequentialJobSpec, recorded []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	steps := make([]v1alpha1.StepStatus, 0, len(spec.Containers))
	after := 0
	for _, record := range recorded {
		if canStart(record.Phase) {
			continue
		}
		steps = append(steps, record)
		if at := slices.IndexFunc(spec.Containers, func(s v1alpha1.Step) bool { return s.Name == record.Name }); at >= 0 {
			after = max(after, at+1)
		}
	}
	for i := range spec.Containers[after:] {
		name := spec.Containers[after+i].Name
		if findStep(steps, name) != nil {
			continue
		}
		waiting := v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepPending}
		if record := findStep(recorded, name); record != nil {
			waiting = *record // the step may wait for its next attempt
		}
		steps = append(steps, waiting)
	}
	return steps
}

// ImmutabilityViolations returns an error for each step that started in the current run and that the spec changes,
// removes, renames or moves. A step that waits can be changed: see isCorrectable. before is the spec before the change; nil if unknown.
func ImmutabilityViolations(before, spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) field.ErrorList {
	if status.Run == 0 || IsFinished(status) {
		return nil
	}
	if before == nil {
		before = &v1alpha1.SequentialJobSpec{}
	}
	isFinally := func(name string) bool { // the step may have been changed or removed
		return IsFinally(before, name) || findStepSpec(before, name) == nil && IsFinally(spec, name)
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "containers")
	others := len(withoutFinally(spec))
	// The started steps are the first of those with finally, and the first of the others.
	next, end := map[bool]int{true: others}, map[bool]int{false: others, true: len(spec.Containers)}
	hasFinallyStarted := false
	for i := range status.Steps {
		record := &status.Steps[i]
		finally := isFinally(record.Name)
		hasFinallyStarted = hasFinallyStarted || finally && record.Phase != v1alpha1.StepPending
		if canStart(record.Phase) || (record.Phase == v1alpha1.StepSkipped && !isUnwanted(record)) {
			continue
		}
		at := next[finally]
		switch {
		case at >= end[finally] || spec.Containers[at].Name != record.Name:
			return append(errs, field.Forbidden(path.Index(at), fmt.Sprintf("step %q has started: it cannot be removed, renamed or moved, and no step can be inserted before it", record.Name)))
		case record.Run == status.Run && !isCorrectable(record) && hasStepChanged(record, findStepSpec(before, record.Name), &spec.Containers[at]):
			errs = append(errs, startedStepChanged(at, record.Name))
		}
		next[finally]++
	}
	if at := next[false]; hasFinallyStarted && at < others && findStep(status.Steps, spec.Containers[at].Name) == nil {
		errs = append(errs, field.Forbidden(path.Index(at), "a step with finally has started: no step can be added before it"))
	}
	return errs
}

// IsRerunRequested reports whether the spec requests a rerun that the status does not record.
func IsRerunRequested(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) bool {
	return spec.Rerun != nil && spec.Rerun.ID != status.RerunID
}

// CheckRerun returns an error if a finished run cannot be rerun as the spec requests.
func CheckRerun(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) error {
	_, err := rerunStart(spec, status)
	return err
}

// RerunWarning says which parameters of a requested rerun are not those with which the steps ran whose outcomes it keeps; empty if it
// keeps none, or all parameters are the same.
func RerunWarning(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) string {
	from, err := rerunStart(spec, status)
	if err != nil || from == 0 {
		return ""
	}
	var changed []string
	for _, p := range runParameters(spec, spec.Rerun) {
		if !slices.Contains(status.Parameters, p) {
			changed = append(changed, p.Name)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	return fmt.Sprintf("the steps up to %q keep their outcomes and outputs, which come from other values of the parameters %s; rerun from Start to replace them",
		spec.Containers[from-1].Name, strings.Join(changed, ", "))
}

// rerunStart returns the index in containers of the rerun's first step. A later step may run after each step before it, so that the
// rerun can keep the outcomes of these steps. From Failed, the first step is the first that failed the run or did not run; else the first
// with a tolerated failure; else, if only a step with finally failed, the first with finally.
func rerunStart(spec *v1alpha1.SequentialJobSpec, status *v1alpha1.SequentialJobStatus) (int, error) {
	isUnfinished := func(s v1alpha1.Step) bool {
		step := findStep(status.Steps, s.Name)
		return step == nil || step.Phase != v1alpha1.StepSucceeded && !step.Tolerated && !isUnwanted(step)
	}
	from, steps := 0, withoutFinally(spec)
	switch spec.Rerun.From {
	case v1alpha1.RerunFromStart:
	case v1alpha1.RerunFromFailed, "":
		from = slices.IndexFunc(steps, isUnfinished)
		if from < 0 {
			from = slices.IndexFunc(steps, func(s v1alpha1.Step) bool { return findStep(status.Steps, s.Name).Tolerated })
		}
		if from < 0 {
			from = len(steps)
			if !slices.ContainsFunc(status.Steps, func(s v1alpha1.StepStatus) bool { return s.Phase == v1alpha1.StepFailed }) {
				return 0, errors.New("cannot rerun from Failed: no step failed; set from to Start or to a step's name")
			}
		}
	default:
		from = slices.IndexFunc(steps, func(s v1alpha1.Step) bool { return s.Name == spec.Rerun.From })
		if from < 0 {
			return 0, fmt.Errorf("cannot rerun from step %q: no step without finally has this name", spec.Rerun.From)
		}
	}
	if at := slices.IndexFunc(spec.Containers[:from], isUnfinished); at >= 0 {
		return 0, fmt.Errorf("cannot rerun from step %q: step %q before it has not succeeded", spec.Containers[from].Name, spec.Containers[at].Name)
	}
	return from, nil
}
