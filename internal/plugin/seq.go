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

// newSeq is `kubectl yardmaster seq`, whose commands are about SequentialJobs.
func newSeq(env *environment) *cobra.Command {
	command := &cobra.Command{
		Use:     "seq",
		Aliases: []string{"sequentialjob", "sj"},
		Short:   "Look at SequentialJobs, and move them on",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newKindList(env, sequentialKind(), "List SequentialJobs, with a sign for each step"),
		newWatch(env), newLogs(env), newRerun(env), newSuspend(env), newResume(env))
	return command
}

// newWatch is `kubectl yardmaster seq watch`.
func newWatch(env *environment) *cobra.Command {
	return newEndingWatch(env, sequentialEnding(), "Watch SequentialJobs get on",
		"Watch a SequentialJob step by step until its run has ended; without a NAME all of the namespace, until interrupted.\n\n"+
			"On a terminal it is drawn in one place; anywhere else there is a line for each change.\n"+
			"The exit code is 0 if all completed, 1 if one failed, and 2 if they could not be watched.",
		"End when all have ended.")
}

// selection is which objects a command is about, if not those named.
type selection struct {
	allNamespaces bool
	selector      string
}

func (s *selection) addFlags(command *cobra.Command) {
	command.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Look at all namespaces.")
	command.Flags().StringVarP(&s.selector, "selector", "l", "", "Labels that they have, such as team=data.")
}

// options are the selection as the API server takes it.
func (s *selection) options(cluster *connection) ([]client.ListOption, error) {
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

// sequentialJob reads the one of that name.
func (c *connection) sequentialJob(ctx context.Context, name string) (*v1alpha1.SequentialJob, error) {
	sj := &v1alpha1.SequentialJob{}
	return sj, c.read(ctx, name, sj)
}

// ended reports whether nothing more is to be expected: the run has ended, and no other is
// about to begin.
func ended(sj *v1alpha1.SequentialJob) bool {
	return sj.Status.CompletionTime != nil && !rerunAhead(sj)
}

// outcome is what the exit code tells of a run that has ended.
func outcome(sj *v1alpha1.SequentialJob) error {
	if sj.Status.Phase == v1alpha1.PhaseFailed {
		return errFound
	}
	return nil
}

// rerunAhead reports whether a rerun is asked for that the operator has not begun.
func rerunAhead(sj *v1alpha1.SequentialJob) bool {
	return sequence.RerunWanted(&sj.Spec, &sj.Status) && sequence.RerunError(&sj.Spec, &sj.Status) == nil
}
