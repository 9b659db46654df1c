// Package story says what the examples are to show: how each ends, what is done to it on
// its way, and what proves that it did its work.
//
// It knows no client: it is given the objects, and judges them.
package scenario

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Example is one file of examples/sequentialjob.
type Example struct {
	// File in examples/sequentialjob; without .yaml it is the SequentialJob's name.
	File string
	// Missing says what the example needs that the demo's cluster does not have. It is
	// then not applied.
	Missing string
	// Refused is in the message with which the API server refuses the example.
	Refused string
	// Action is what the demo does to the example, if anything.
	Action *Action
	// Phase and Run in which it ends.
	Phase v1alpha1.SequentialJobPhase
	Run   int32
	// Steps are how they end, in order.
	Steps []ExpectedStep
}

// ExpectedStep is how a step ends.
type ExpectedStep struct {
	Name  string
	Phase v1alpha1.StepPhase
	// Run that the outcome is of, if not the last.
	Run int32
	// Output that is recorded of it.
	Output string
	// LogContains is a line of its log.
	LogContains string
}

// Action is something that a user does to a SequentialJob.
type Action struct {
	// When it is in this phase, and has been for so long that it can be seen.
	When  v1alpha1.SequentialJobPhase
	After time.Duration
	// Description it is about.
	Description string
	Patch       string
	Type        types.PatchType
}

// ManifestPath of its manifest in examples/.
func (e *Example) ManifestPath() string { return "sequentialjob/" + e.File }

// ObjectName of the SequentialJob.
func (e *Example) ObjectName() string { return strings.TrimSuffix(e.File, ".yaml") }

// IsApplied reports whether the example is to be in the cluster.
func (e *Example) IsApplied() bool { return e.Missing == "" && e.Refused == "" }

// KubectlCommand is what a user would type for the action.
func (a *Action) KubectlCommand(namespace, name string) string {
	kind := "merge"
	if a.Type == types.JSONPatchType {
		kind = "json"
	}
	return fmt.Sprintf("kubectl -n %s patch sequentialjob %s --type=%s -p '%s'", namespace, name, kind, a.Patch)
}

// IsDue reports whether it is time for the action. It is done once: the caller says whether
// it was.
func (a *Action) IsDue(sj *v1alpha1.SequentialJob, inPhaseFor time.Duration) bool {
	return a != nil && sj.Status.Phase == a.When && inPhaseFor >= a.After
}

// IsFinished reports whether nothing more is to be expected of the example.
func (e *Example) IsFinished(sj *v1alpha1.SequentialJob, acted bool) bool {
	if sj.Status.CompletionTime == nil {
		return false
	}
	awaited := e.Action != nil && !acted && sj.Status.Phase == e.Action.When
	return !awaited && (!acted || sj.Status.Run >= e.Run)
}

// Mismatches are how the example's end differs from what it should be.
func (e *Example) Mismatches(sj *v1alpha1.SequentialJob, logOf func(step *v1alpha1.StepStatus) string) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if sj.Status.Phase != e.Phase {
		fault("its status is %q, it should be %q", sj.Status.Phase, e.Phase)
	}
	if sj.Status.Run != e.Run {
		fault("it is at run %d, it should be at run %d", sj.Status.Run, e.Run)
	}
	if len(sj.Status.Steps) != len(e.Steps) {
		fault("it has %d steps, it should have %d", len(sj.Status.Steps), len(e.Steps))
		return faults
	}
	for i := range e.Steps {
		for _, text := range e.Steps[i].mismatches(&sj.Status.Steps[i], e.Run, logOf) {
			fault("step %s %s", e.Steps[i].Name, text)
		}
	}
	return faults
}

func (s *ExpectedStep) mismatches(actual *v1alpha1.StepStatus, run int32, logOf func(*v1alpha1.StepStatus) string) []string {
	if actual.Name != s.Name {
		return []string{fmt.Sprintf("should be where step %s is", actual.Name)}
	}
	var faults []string
	if actual.Phase != s.Phase {
		faults = append(faults, fmt.Sprintf("ended as %s, it should end as %s", actual.Phase, s.Phase))
	}
	if s.Run != 0 {
		run = s.Run
	}
	if actual.Run != run && s.Phase != v1alpha1.StepSkipped {
		faults = append(faults, fmt.Sprintf("ended in run %d, it should end in run %d", actual.Run, run))
	}
	if actual.Output != s.Output {
		faults = append(faults, fmt.Sprintf("has the output %q, it should have %q", actual.Output, s.Output))
	}
	if s.LogContains != "" && !strings.Contains(logOf(actual), s.LogContains) {
		faults = append(faults, fmt.Sprintf("should have logged %q", s.LogContains))
	}
	return faults
}
