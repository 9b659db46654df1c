package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
)

// sequenceLogsCommand is `kubectl yardmaster seq logs`.
type sequenceLogsCommand struct {
	*environment
	logFlags

	step string
}

func newSequenceLogsCommand(env *environment) *cobra.Command {
	l := &sequenceLogsCommand{environment: env}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the logs of a SequentialJob's steps",
		Long: "Print the logs of a SequentialJob's steps in order. Each line starts with the step's name.\n\n" +
			"If a step can have several Pods, its name is followed by the end of the Pod's name. If the line is from another container, " +
			"such as an init container, its name follows too. Missing logs are reported on standard error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: sequentialJobKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return l.printLogs(command.Context(), args[0]) },
	}
	command.Flags().StringVar(&l.step, "step", "", "Print only the logs of this step.")
	panicOnError(command.RegisterFlagCompletionFunc("step", env.completeStepName))
	l.addLogFlags(command, "Keep printing, step after step, until the run finishes.")
	return command
}

func (l *sequenceLogsCommand) printLogs(ctx context.Context, name string) error {
	if err := l.validateFlags(); err != nil {
		return err
	}
	cluster, sj, err := sequentialJobKind().connectAndGet(ctx, l.environment, name)
	if err != nil {
		return err
	}
	if steps := logs.StepNames(sj); l.step != "" && !slices.Contains(steps, l.step) {
		return fmt.Errorf("invalid --step %q: must be one of %s", l.step, strings.Join(steps, ", "))
	}
	options, podSelector := l.streamOptions(l.environment), selectSequencePods(sj)
	options.Step = l.step
	streamer, err := logs.NewSequenceStreamer(ctx, &podLogClient{cluster, sj.Namespace, podSelector}, sj, options)
	if err != nil {
		return err
	}
	if !l.follow {
		return streamer.PrintCurrent(ctx, sj)
	}
	return followLogs(ctx, cluster, sequentialJobKind(), sj, podSelector, func(ctx context.Context, changes logs.Changes[*v1alpha1.SequentialJob]) error {
		return streamer.Follow(ctx, sj, isRunFinished, changes)
	})
}

// selectSequencePods selects the Pods created for the SequentialJob.
func selectSequencePods(sj *v1alpha1.SequentialJob) []client.ListOption {
	return []client.ListOption{client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJobUID: string(sj.UID)}}
}
