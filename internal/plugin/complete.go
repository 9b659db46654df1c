package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// patience is how long a shell waits for the API server before it completes nothing.
const patience = 3 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeName completes the name of one SequentialJob.
func (e *environment) completeName(command *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, noFiles
	}
	return e.completeNames(command, given, typed)
}

// completeNames completes the names of SequentialJobs that are not among those given. The
// shell itself leaves out what does not begin with what is typed.
func (e *environment) completeNames(command *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), patience)
	defer cancel()
	cluster, err := e.connect(e.config)
	if err != nil {
		return nil, noFiles
	}
	var list v1alpha1.SequentialJobList
	if err := cluster.List(ctx, &list, client.InNamespace(cluster.namespace)); err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for i := range list.Items {
		if sj := &list.Items[i]; !slices.Contains(given, sj.Name) {
			names = append(names, cobra.CompletionWithDesc(sj.Name, string(sj.Status.Phase)))
		}
	}
	return names, noFiles
}

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
