package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

func sequenceEntry(sj *v1alpha1.SequentialJob) *Entry {
	e := newEntry(Sequences, sj)
	phase := render.SequencePhase(sj)
	e.Status, e.Level, e.Reason = string(phase), sequenceLevels[phase], cleanLine(sj.Status.Reason)
	e.Since, e.Finished = timeOf(sj.Status.StartTime), timeOf(sj.Status.CompletionTime)
	if !e.Finished.IsZero() {
		e.Since = e.Finished
	}
	e.setProblems(render.SequenceProblems(sj))
	switch step := sequentialjob.AwaitingApproval(sj); {
	case step != "":
		e.Asks, e.NeedsAttention, e.Level = true, true, LevelWaiting
		e.Reason, e.Message = v1alpha1.ReasonApprovalRequired, "step "+cleanLine(step)+" waits for an approval"
	case phase == v1alpha1.PhaseFailed:
		e.NeedsAttention, e.Message = true, ""
		for i := range sj.Status.Steps {
			if failed := &sj.Status.Steps[i]; failed.Phase == v1alpha1.StepFailed && !failed.Tolerated {
				e.Message = "step " + cleanLine(failed.Name) + ": " + cleanLine(failed.Message)
				break // it failed the run
			}
		}
	}
	return e
}

// StepToShow returns the step of a sequence whose log explains its state: that failed the run, or else that runs; empty for a session
// that has started, whose log has no steps; nil without a log.
func StepToShow(e *Entry) *string {
	sj, isSequence := e.Object.(*v1alpha1.SequentialJob)
	if session, isSession := e.Object.(*v1alpha1.AgenticSession); isSession && session.Status.Run > 0 {
		return new("")
	}
	if !isSequence {
		return nil
	}
	var active *string
	for i := range sj.Status.Steps {
		switch step := &sj.Status.Steps[i]; {
		case step.JobName == "":
		case step.Phase == v1alpha1.StepFailed && !step.Tolerated, step.Phase == v1alpha1.StepRetrying:
			return &step.Name
		case step.Phase == v1alpha1.StepRunning:
			active = &step.Name
		}
	}
	return active
}

// sequenceLevels has no entry for phases in which nothing runs yet.
var sequenceLevels = map[v1alpha1.SequentialJobPhase]Level{
	v1alpha1.PhaseCompleted: LevelGood, v1alpha1.PhaseFailed: LevelProblem, v1alpha1.PhaseRunning: LevelActive,
	v1alpha1.PhaseSuspended: LevelWaiting, v1alpha1.PhaseTerminating: LevelWaiting,
}

// Step is a row of a sequence's timeline.
type Step struct {
	Name           string
	Finally        bool
	Phase          string
	Level          Level
	Start, Finish  time.Time
	Remarks        []string
	Message        string
	Output         string
	NextAttempt    time.Time
	Content        string // what an approval lets run
	HasLog         bool
	Actions        []Action
	Offset, Length float64 // of its bar, in percent of the timeline
}

// Sequence is the page of a SequentialJob.
type Sequence struct {
	*Entry

	Progress      string
	Run           string
	Start, Finish time.Time
	Problems      []render.Problem
	Parameters    []v1alpha1.Parameter
	Results       []v1alpha1.Parameter
	Steps         []Step
	Bars          []Bar
	Actions       []Action
}

// NewSequence computes the page of a SequentialJob.
func NewSequence(e *Entry, sj *v1alpha1.SequentialJob, runs []Run, now time.Time) *Sequence {
	s := &Sequence{
		Entry: e, Progress: cleanLine(sequentialjob.FormatProgress(sj, false)), Run: ordinal(sj.Status.Run),
		Start: timeOf(sj.Status.StartTime), Finish: timeOf(sj.Status.CompletionTime), Problems: render.SequenceProblems(sj),
		Actions: sequenceActions(e, sj), Bars: NewBars(runs, now),
	}
	clean := func(values []v1alpha1.Parameter) (cleaned []v1alpha1.Parameter) {
		for _, p := range values {
			cleaned = append(cleaned, v1alpha1.Parameter{Name: cleanLine(p.Name), Value: cleanLine(p.Value)})
		}
		return cleaned
	}
	s.Parameters, s.Results = clean(sj.Status.Parameters), clean(sj.Status.Results)
	awaiting := sequentialjob.AwaitingApproval(sj)
	for i := range sj.Status.Steps {
		s.Steps = append(s.Steps, newStep(e, sj, &sj.Status.Steps[i], awaiting))
	}
	s.placeBars(now)
	return s
}

func newStep(e *Entry, sj *v1alpha1.SequentialJob, status *v1alpha1.StepStatus, awaiting string) Step {
	finally := sequentialjob.IsFinally(&sj.Spec, status.Name)
	step := Step{
		Name: cleanLine(status.Name), Finally: finally, Phase: string(status.Phase), Level: stepLevel(status),
		Start: timeOf(status.StartTime), Finish: timeOf(status.CompletionTime), NextAttempt: timeOf(status.NextAttemptTime),
		Remarks: stepRemarks(sj, status), Message: joinReason(status.Reason, status.Message), Output: cleanText(status.Output),
		HasLog: status.JobName != "",
	}
	if status.Name == awaiting {
		step.Content = cleanText(strings.Join(render.AwaitingStep(sj), "\n"))
		step.Actions = append(step.Actions, approveAction(e, sj, status.Name))
	}
	if !finally && canRerun(sj, status.Name) {
		step.Actions = append(step.Actions, rerunAction(e, status.Name, "Rerun from here",
			"Starts the next run at step "+status.Name+". Earlier steps keep their outcomes."))
	}
	return step
}

func stepLevel(step *v1alpha1.StepStatus) Level {
	switch step.Phase {
	case v1alpha1.StepSucceeded:
		return LevelGood
	case v1alpha1.StepFailed, v1alpha1.StepLost:
		if step.Tolerated {
			return LevelWaiting
		}
		return LevelProblem
	case v1alpha1.StepStarting, v1alpha1.StepRunning:
		return LevelActive
	case v1alpha1.StepPending, v1alpha1.StepSkipped:
		return LevelNone
	default:
		return LevelWaiting
	}
}

func stepRemarks(sj *v1alpha1.SequentialJob, step *v1alpha1.StepStatus) []string {
	var remarks []string
	if step.Run != 0 && step.Run != sj.Status.Run {
		remarks = append(remarks, fmt.Sprintf("from run %d", step.Run))
	}
	if step.Attempt > 1 {
		remarks = append(remarks, fmt.Sprintf("attempt %d", step.Attempt))
	}
	if step.FailedAttempts > 0 {
		remarks = append(remarks, fmt.Sprintf("%d failed", step.FailedAttempts))
	}
	if step.FailedPods > 0 {
		remarks = append(remarks, fmt.Sprintf("%d failed Pods", step.FailedPods))
	}
	if step.ExitCode != nil {
		remarks = append(remarks, fmt.Sprintf("exit code %d", *step.ExitCode))
	}
	if step.Tolerated {
		remarks = append(remarks, "tolerated")
	}
	if step.ApprovedBy != "" {
		remarks = append(remarks, "approved by "+cleanLine(step.ApprovedBy))
	}
	return remarks
}

func joinReason(reason, message string) string {
	reason, message = cleanLine(reason), cleanLine(message)
	if reason != "" && message != "" {
		return reason + ": " + message
	}
	return reason + message
}

// placeBars computes the place of each step between the start of the run and its end, or now.
func (s *Sequence) placeBars(now time.Time) {
	if s.Start.IsZero() {
		return
	}
	begin, end := s.Start, s.Finish
	if end.IsZero() {
		end = now
	}
	for i := range s.Steps {
		if start := s.Steps[i].Start; !start.IsZero() && start.Before(begin) && s.Steps[i].isOfRun() {
			begin = start // a resumed run starts with its resumption
		}
	}
	total := end.Sub(begin).Seconds()
	if total <= 0 {
		return
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Start.IsZero() || !step.isOfRun() {
			continue
		}
		finish := step.Finish
		if finish.IsZero() {
			finish = end
		}
		const percent, minLength = 100, 0.5
		step.Offset = min(max(0, step.Start.Sub(begin).Seconds()/total*percent), percent-minLength)
		step.Length = min(max(minLength, finish.Sub(step.Start).Seconds()/total*percent), percent-step.Offset)
	}
}

// isOfRun reports whether the current run executed the step.
func (s *Step) isOfRun() bool {
	return len(s.Remarks) == 0 || !strings.HasPrefix(s.Remarks[0], "from run ")
}

func sequenceActions(e *Entry, sj *v1alpha1.SequentialJob) []Action {
	var actions []Action
	if step := sequentialjob.AwaitingApproval(sj); step != "" {
		actions = append(actions, approveAction(e, sj, step))
	}
	if canRerun(sj, v1alpha1.RerunFromFailed) && sj.Status.Phase == v1alpha1.PhaseFailed {
		rerun := rerunAction(e, v1alpha1.RerunFromFailed, "Rerun from the failed step", "Starts the next run at the step that failed. Completed steps are kept.")
		rerun.Helps = true
		actions = append(actions, rerun)
	}
	if canRerun(sj, v1alpha1.RerunFromStart) {
		actions = append(actions, rerunAction(e, v1alpha1.RerunFromStart, "Rerun all steps", "Starts the next run at the first step."))
	}
	if sj.Spec.Suspend {
		return append(actions, newAction(e, "Resume", "Resumes the run.", "resume"))
	}
	suspend := newAction(e, "Suspend", "Starts no further step until it is resumed. The running step finishes first.", "suspend")
	if sj.Spec.SuspendPolicy == v1alpha1.SuspendImmediate && sj.Status.CompletionTime == nil {
		suspend = newAction(e, "Suspend", "Stops the running step. It starts over when the run is resumed.", "suspend").destroying(e)
	}
	return append(actions, suspend)
}

func approveAction(e *Entry, sj *v1alpha1.SequentialJob, step string) Action {
	words := []string{"approve", "--step=" + step}
	if sj.Status.Approval != nil {
		words = append(words, "--hash="+sj.Status.Approval.Hash) // of what the page shows
	}
	action := newAction(e, "Approve "+step, "Lets step "+step+" start with what this page shows. The status records your user name.", words...)
	action.Argument, action.Helps = step, true
	return action
}

func rerunAction(e *Entry, from, label, effect string) Action {
	action := newAction(e, label, effect, "rerun", "--from="+from)
	action.Argument = from
	return action
}

// canRerun reports whether a rerun from a step is possible now. The command checks it again.
func canRerun(sj *v1alpha1.SequentialJob, from string) bool {
	if sj.Status.CompletionTime == nil || !sj.DeletionTimestamp.IsZero() || sequentialjob.IsRerunRequested(&sj.Spec, &sj.Status) {
		return false
	}
	spec := sj.Spec
	spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "check"}, From: from}
	return sequentialjob.CheckRerun(&spec, &sj.Status) == nil
}
