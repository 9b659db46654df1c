package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// newSequenceCommand is `kubectl yardmaster seq`, the parent of commands for SequentialJobs.
func newSequenceCommand(env *environment) *cobra.Command {
	return newParentCommand("seq", []string{"sequentialjob", "sj"}, "Inspect and control SequentialJobs",
		newListCommand(env, sequentialJobKind, "List SequentialJobs with a symbol for each step"),
		newWatchUntilFinishedCommand(env, sequentialJobKind, "Watch SequentialJobs",
			"Watch the steps of a SequentialJob until its run finishes. Without a NAME, watch all SequentialJobs in the namespace until interrupted.\n\n"+
				watchOutputHelp+"The exit code is 0 if all completed, 1 if one failed, and 2 if watching failed.",
			"Exit when all runs have finished."),
		newCreateSequenceCommand(env), newSequenceLogsCommand(env), newRerunCommand(env), newApproveCommand(env),
		newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
			kind: sequentialJobKind, verb: "suspend", short: "Suspend SequentialJobs",
			long: "Suspend SequentialJobs. With suspendPolicy AfterCurrent, the running step finishes first. " +
				"With Immediate, it is stopped, and starts over on resume.",
			changeSpec:     func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = true },
			changedMessage: "suspended", unchangedMessage: "is already suspended", overwrite: true,
			remark: func(sj *v1alpha1.SequentialJob) string {
				if !isRunFinished(sj) {
					return ""
				}
				return "; its run has finished, and the next run will wait until it is resumed"
			},
		}),
		newChangeCommand(env, specChange[*v1alpha1.SequentialJob]{
			kind: sequentialJobKind, verb: "resume", short: "Resume SequentialJobs", long: "Resume suspended SequentialJobs.",
			changeSpec:     func(sj *v1alpha1.SequentialJob) { sj.Spec.Suspend = false },
			changedMessage: "resumed", unchangedMessage: "is not suspended", overwrite: true,
		}))
}

// newSequenceLogsCommand is `kubectl yardmaster seq logs`.
func newSequenceLogsCommand(env *environment) *cobra.Command {
	l := &logsCommand[*v1alpha1.SequentialJob]{
		environment: env, kind: sequentialJobKind, podLabel: v1alpha1.LabelSequentialJobUID,
		newStreamer: func(
			ctx context.Context, pods logs.PodClient, sj *v1alpha1.SequentialJob, options logs.StreamOptions,
		) (logStreamer[*v1alpha1.SequentialJob], error) {
			if steps := logs.StepNames(sj); options.Step != "" && !slices.Contains(steps, options.Step) {
				return nil, fmt.Errorf("invalid --step %q: must be one of %s", options.Step, strings.Join(steps, ", "))
			}
			return logs.NewSequenceStreamer(ctx, pods, sj, options)
		},
	}
	command := l.newCommand("Print the logs of a SequentialJob's steps",
		"Print the logs of a SequentialJob's steps in order. Each line starts with the step's name.\n\n"+
			"If a step can have several Pods, its name is followed by the end of the Pod's name. If the line is from another container, "+
			"such as an init container, its name follows too.",
		"Keep printing, step after step, until the run finishes.")
	command.Flags().StringVar(&l.options.Step, "step", "", "Print only the logs of this step.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	return command
}

// isRunFinished reports whether no further change is expected: the run has finished, and no
// rerun is pending.
func isRunFinished(sj *v1alpha1.SequentialJob) bool {
	return sj.Status.CompletionTime != nil && !isRerunPending(sj)
}

// isRerunPending reports whether a valid rerun is requested that the operator has not
// started.
func isRerunPending(sj *v1alpha1.SequentialJob) bool {
	return sequentialjob.IsRerunRequested(&sj.Spec, &sj.Status) && sequentialjob.CheckRerun(&sj.Spec, &sj.Status) == nil
}
