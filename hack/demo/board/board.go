// Package board draws SequentialJobs in a terminal.
package board

import (
	"fmt"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Style says how to draw.
type Style struct {
	Colour bool
}

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	dim    = "2"
	bold   = "1"
)

const (
	nameWidth  = 20
	phaseWidth = 10
	barWidth   = 10
	stepWidth  = 14
)

func (s Style) paint(colour, text string) string {
	if !s.Colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Bold is text that stands out.
func (s Style) Bold(text string) string { return s.paint(bold, text) }

// Good is text about a success.
func (s Style) Good(text string) string { return s.paint(green, text) }

// Bad is text about a failure.
func (s Style) Bad(text string) string { return s.paint(red, text) }

// Header is the line above the rows.
func (s Style) Header() string {
	return s.paint(dim, fmt.Sprintf("  %-*s %-*s %-*s %-*s %s", nameWidth, "NAME", phaseWidth, "STATUS", barWidth, "STEPS", stepWidth, "STEP", "TIME"))
}

// Row is a line about one SequentialJob: phase, steps, current step, and time taken.
func (s Style) Row(sj *v1alpha1.SequentialJob, now time.Time) string {
	phase := string(sj.Status.Phase)
	if phase == "" {
		phase = string(v1alpha1.PhasePending)
	}
	bar, width := s.bar(sj.Status.Steps)
	if width == 0 {
		return "  " + fmt.Sprintf("%-*s ", nameWidth, sj.Name) + s.paint(phaseColour(sj.Status.Phase), phase)
	}
	return strings.TrimRight(fmt.Sprintf("  %-*s %s %s%s %-*s %s",
		nameWidth, sj.Name,
		s.paint(phaseColour(sj.Status.Phase), fmt.Sprintf("%-*s", phaseWidth, phase)),
		bar, strings.Repeat(" ", max(0, barWidth-width)),
		stepWidth, sj.Status.Progress.CurrentStep,
		taken(&sj.Status, now)), " ")
}

// bar is a sign for each step, and how many columns they take. Those of finally stand
// behind a bar.
func (s Style) bar(steps []v1alpha1.StepStatus) (bar string, width int) {
	var text strings.Builder
	for i := range steps {
		if steps[i].Finally && (i == 0 || !steps[i-1].Finally) {
			text.WriteString(s.paint(dim, "|"))
			width++
		}
		sign, colour := signOf(&steps[i])
		text.WriteString(s.paint(colour, sign))
		width++
	}
	return text.String(), width
}

func signOf(step *v1alpha1.StepStatus) (sign, colour string) {
	switch step.Phase {
	case v1alpha1.StepSucceeded:
		return "✔", green
	case v1alpha1.StepFailed:
		if step.Tolerated {
			return "✘", yellow
		}
		return "✘", red
	case v1alpha1.StepStarting, v1alpha1.StepRunning:
		return "▶", cyan
	case v1alpha1.StepSuspended:
		return "‖", yellow
	case v1alpha1.StepStopping:
		return "■", yellow
	case v1alpha1.StepSkipped:
		return "-", dim
	default:
		return "·", dim
	}
}

func phaseColour(phase v1alpha1.SequentialJobPhase) string {
	switch phase {
	case v1alpha1.PhaseCompleted:
		return green
	case v1alpha1.PhaseFailed:
		return red
	case v1alpha1.PhaseRunning:
		return cyan
	case v1alpha1.PhaseSuspended, v1alpha1.PhaseTerminating:
		return yellow
	default:
		return dim
	}
}

// taken is the time from the run's start to its end or now.
func taken(status *v1alpha1.SequentialJobStatus, now time.Time) string {
	if status.StartTime == nil {
		return ""
	}
	if status.CompletionTime != nil {
		now = status.CompletionTime.Time
	}
	return max(0, now.Sub(status.StartTime.Time)).Round(time.Second).String()
}

// Legend explains the signs.
func (s Style) Legend() string {
	entry := func(phase v1alpha1.StepPhase, meaning string) string {
		sign, colour := signOf(&v1alpha1.StepStatus{Phase: phase})
		return s.paint(colour, sign) + " " + meaning
	}
	return "  " + strings.Join([]string{
		entry(v1alpha1.StepSucceeded, "succeeded"), entry(v1alpha1.StepFailed, "failed"),
		entry(v1alpha1.StepRunning, "running"), entry(v1alpha1.StepPending, "to come"),
		entry(v1alpha1.StepSkipped, "skipped"), s.paint(dim, "|") + " finally",
	}, "   ")
}
