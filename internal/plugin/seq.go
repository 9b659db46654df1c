package plugin

import (
	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

// newSequenceCommand is `kubectl yardmaster seq`, the parent of commands for SequentialJobs.
func newSequenceCommand(env *environment) *cobra.Command {
	return newParentCommand("seq", []string{"sequentialjob", "sj"}, "Inspect and control SequentialJobs",
		newListCommand(env, sequentialJobKind(), "List SequentialJobs with a symbol for each step"),
		newSequenceWatchCommand(env), newSequenceLogsCommand(env), newRerunCommand(env), newSuspendSequenceCommand(env), newResumeSequenceCommand(env))
}

// newSequenceWatchCommand is `kubectl yardmaster seq watch`.
func newSequenceWatchCommand(env *environment) *cobra.Command {
	return newWatchCommand(env, watchableSequentialJobs(), "Watch SequentialJobs",
		"Watch the steps of a SequentialJob until its run finishes. Without a NAME, watch all SequentialJobs in the namespace until interrupted.\n\n"+
			watchOutputHelp+"The exit code is 0 if all completed, 1 if one failed, and 2 if watching failed.",
		"Exit when all runs have finished.")
}

// isRunFinished reports whether no further change is expected: the run has finished, and no
// rerun is pending.
func isRunFinished(sj *v1alpha1.SequentialJob) bool {
	return sj.Status.CompletionTime != nil && !isRerunPending(sj)
}

// checkRunSucceeded returns errUnsuccessful for a run that failed.
func checkRunSucceeded(sj *v1alpha1.SequentialJob) error {
	if sj.Status.Phase == v1alpha1.PhaseFailed {
		return errUnsuccessful
	}
	return nil
}

// isRerunPending reports whether a valid rerun is requested that the operator has not
// started.
func isRerunPending(sj *v1alpha1.SequentialJob) bool {
	return sequence.IsRerunRequested(&sj.Spec, &sj.Status) && sequence.CheckRerun(&sj.Spec, &sj.Status) == nil
}
