package plugin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// completionTimeout limits how long a shell waits for the API server. After it, nothing is
// completed.
const completionTimeout = 3 * time.Second

const noFileCompletion = cobra.ShellCompDirectiveNoFileComp

// completeRerunStart completes the value of `seq rerun --from`.
func (e *environment) completeRerunStart(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	starts := []cobra.Completion{v1alpha1.RerunFromFailed, v1alpha1.RerunFromStart}
	if sj := e.completionTarget(command, given); sj != nil {
		for i := range sj.Spec.Containers {
			starts = append(starts, sj.Spec.Containers[i].Name)
		}
	}
	return starts, noFileCompletion
}

// completeStepName completes the name of a step.
func (e *environment) completeStepName(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if sj := e.completionTarget(command, given); sj != nil {
		return logs.StepNames(sj), noFileCompletion
	}
	return nil, noFileCompletion
}

// completionTarget reads the SequentialJob named on the command line. It returns nil if
// there is no name yet or the object cannot be read.
func (e *environment) completionTarget(command *cobra.Command, given []string) *v1alpha1.SequentialJob {
	if len(given) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	_, sj, err := sequentialJobKind.connectAndGet(ctx, e, given[0])
	if err != nil {
		return nil
	}
	return sj
}

// panicOnError is for errors that only a programming mistake can cause, such as completion
// for a flag that does not exist.
func panicOnError(err error) {
	if err != nil {
		panic(err)
	}
}
