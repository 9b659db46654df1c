package render

import (
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func coloredSymbol(s terminal.Style, step *v1alpha1.StepStatus) string {
	symbol, color := stepSymbol(step)
	return s.Colorize(color, symbol)
}

func stepSymbol(step *v1alpha1.StepStatus) (symbol string, color terminal.Color) {
	switch step.Phase {
	case v1alpha1.StepSucceeded:
		return "✔", terminal.Green
	case v1alpha1.StepFailed:
		if step.Tolerated {
			return "✘", terminal.Yellow
		}
		return "✘", terminal.Red
	case v1alpha1.StepStarting, v1alpha1.StepRunning:
		return "▶", terminal.Cyan
	case v1alpha1.StepSuspended, v1alpha1.StepInterrupted:
		return "‖", terminal.Yellow
	case v1alpha1.StepStopping, v1alpha1.StepSuspending:
		return "■", terminal.Yellow
	case v1alpha1.StepSkipped:
		return "-", terminal.Dim
	default:
		return "·", terminal.Dim
	}
}

func phaseColor(phase v1alpha1.SequentialJobPhase) terminal.Color {
	switch phase {
	case v1alpha1.PhaseCompleted:
		return terminal.Green
	case v1alpha1.PhaseFailed:
		return terminal.Red
	case v1alpha1.PhaseRunning:
		return terminal.Cyan
	case v1alpha1.PhaseSuspended, v1alpha1.PhaseTerminating:
		return terminal.Yellow
	default:
		return terminal.Dim
	}
}

// StepLegend explains the symbols of steps.
func StepLegend(s terminal.Style) string {
	entry := func(phase v1alpha1.StepPhase, meaning string) string {
		return coloredSymbol(s, &v1alpha1.StepStatus{Phase: phase}) + " " + meaning
	}
	return strings.Join([]string{
		entry(v1alpha1.StepSucceeded, "succeeded"), entry(v1alpha1.StepFailed, "failed"),
		entry(v1alpha1.StepRunning, "running"), entry(v1alpha1.StepPending, "pending"),
		entry(v1alpha1.StepSkipped, "skipped"), s.Colorize(terminal.Dim, "|") + " finally",
	}, "   ")
}
