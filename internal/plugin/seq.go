package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// newSequenceCommand is `kubectl yardmaster seq`, whose commands are about SequentialJobs.
func newSequenceCommand(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "seq",
		Aliases: []string{"sequentialjob", "sj"},
		Short:   "Look at SequentialJobs, and move them on",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newListCommand(env, sequentialJobKind(), "List SequentialJobs, with a sign for each step"),
		newSequenceWatchCommand(env), newSequenceLogsCommand(env), newRerunCommand(env), newSuspendSequenceCommand(env), newResumeSequenceCommand(env))
	return command
}

// newSequenceWatchCommand is `kubectl yardmaster seq watch`.
func newSequenceWatchCommand(env *environment) *cobra.Command {
	return newWatchCommand(env, watchableSequentialJobs(), "Watch SequentialJobs get on",
		"Watch a SequentialJob step by step until its run has ended; without a NAME all of the namespace, until interrupted.\n\n"+
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n"+
			"The exit code is 0 if all completed, 1 if one failed, and 2 if they could not be watched.",
		"End when all have ended.")
}

// objectSelection is which objects a command is about, if not those named.
type objectSelection struct {
	allNamespaces bool
	selector      string
}

func (s *objectSelection) addSelectionFlags(command *cobra.Command) {
	command.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Look at all namespaces.")
	command.Flags().StringVarP(&s.selector, "selector", "l", "", "Labels that they have, such as team=data.")
}

// listOptions are the selection as the API server takes it.
func (s *objectSelection) listOptions(cluster *clusterConnection) ([]client.ListOption, error) {
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	options := []client.ListOption{client.MatchingLabelsSelector{Selector: selector}}
	if !s.allNamespaces {
		options = append(options, client.InNamespace(cluster.namespace))
	}
	return options, nil
}

// getSequentialJob reads the one of that name.
func (c *clusterConnection) getSequentialJob(ctx context.Context, name string) (*v1alpha1.SequentialJob, error) {
	sj := &v1alpha1.SequentialJob{}
	return sj, c.getByName(ctx, name, sj)
}

// isRunFinished reports whether nothing more is to be expected: the run has ended, and no other is
// about to begin.
func isRunFinished(sj *v1alpha1.SequentialJob) bool {
	return sj.Status.CompletionTime != nil && !isRerunPending(sj)
}

// checkRunSucceeded is what the exit code tells of a run that has ended.
func checkRunSucceeded(sj *v1alpha1.SequentialJob) error {
	if sj.Status.Phase == v1alpha1.PhaseFailed {
		return errUnsuccessful
	}
	return nil
}

// isRerunPending reports whether a rerun is asked for that the operator has not begun.
func isRerunPending(sj *v1alpha1.SequentialJob) bool {
	return sequence.IsRerunRequested(&sj.Spec, &sj.Status) && sequence.CheckRerun(&sj.Spec, &sj.Status) == nil
}
