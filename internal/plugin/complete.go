package plugin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// patience is how long a shell waits for the API server before it completes nothing.
const patience = 3 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeStart completes where a rerun may begin.
func (e *environment) completeStart(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	starts := []cobra.Completion{v1alpha1.RerunFromFailed, v1alpha1.RerunFromStart}
	if sj := e.completed(command, given); sj != nil {
		for i := range sj.Spec.Containers {
			starts = append(starts, sj.Spec.Containers[i].Name)
		}
	}
	return starts, noFiles
}

// completeStep completes a step's name.
func (e *environment) completeStep(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if sj := e.completed(command, given); sj != nil {
		return logs.Steps(sj), noFiles
	}
	return nil, noFiles
}

// completed is the SequentialJob that was named, nil if it cannot be read.
func (e *environment) completed(command *cobra.Command, given []string) *v1alpha1.SequentialJob {
	if len(given) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), patience)
	defer cancel()
	cluster, err := e.connect(e.config)
	if err != nil {
		return nil
	}
	sj, err := cluster.sequentialJob(ctx, given[0])
	if err != nil {
		return nil
	}
	return sj
}

// must holds for flags that the same command has just been given.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
