package plugin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// completionTimeout is how long a shell waits for the API server before it completes nothing.
const completionTimeout = 3 * time.Second

const noFileCompletion = cobra.ShellCompDirectiveNoFileComp

// completeRerunStart completes where a rerun may begin.
func (e *environment) completeRerunStart(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	starts := []cobra.Completion{v1alpha1.RerunFromFailed, v1alpha1.RerunFromStart}
	if sj := e.completionTarget(command, given); sj != nil {
		for i := range sj.Spec.Containers {
			starts = append(starts, sj.Spec.Containers[i].Name)
		}
	}
	return starts, noFileCompletion
}

// completeStepName completes a step's name.
func (e *environment) completeStepName(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if sj := e.completionTarget(command, given); sj != nil {
		return logs.StepNames(sj), noFileCompletion
	}
	return nil, noFileCompletion
}

// completionTarget is the SequentialJob that was named, nil if it cannot be read.
func (e *environment) completionTarget(command *cobra.Command, given []string) *v1alpha1.SequentialJob {
	if len(given) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	defer cancel()
	cluster, err := e.connect(e.clientConfig)
	if err != nil {
		return nil
	}
	sj, err := cluster.getSequentialJob(ctx, given[0])
	if err != nil {
		return nil
	}
	return sj
}

// panicOnError holds for flags that the same command has just been given.
func panicOnError(err error) {
	if err != nil {
		panic(err)
	}
}
