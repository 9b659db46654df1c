package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// suspendSequenceCommand is `kubectl yardmaster seq suspend` and `resume`.
type suspendSequenceCommand struct {
	*environment

	suspend bool
	// done says what a SequentialJob is then.
	done string
}

func newSuspendSequenceCommand(env *environment) *cobra.Command {
	s := &suspendSequenceCommand{environment: env, suspend: true, done: "suspended"}
	return s.command("suspend", "Hold SequentialJobs",
		"Hold SequentialJobs. With suspendPolicy AfterCurrent the running step ends first; with Immediate it is ended, and begins anew when resumed.")
}

func newResumeSequenceCommand(env *environment) *cobra.Command {
	s := &suspendSequenceCommand{environment: env, done: "resumed"}
	return s.command("resume", "Let SequentialJobs go on", "Let SequentialJobs go on that were suspended.")
}

func (s *suspendSequenceCommand) command(verb, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Long:              long + "\n\nThe exit code is 2 if any of them could not be changed; the others are all the same.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: sequentialJobKind().completeNames(s.environment),
		RunE:              func(command *cobra.Command, names []string) error { return s.run(command.Context(), names) },
	}
}

func (s *suspendSequenceCommand) run(ctx context.Context, names []string) error {
	cluster, err := s.connect(s.clientConfig)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		if err := s.one(ctx, cluster, name); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (s *suspendSequenceCommand) one(ctx context.Context, cluster *clusterConnection, name string) error {
	sj, err := cluster.getSequentialJob(ctx, name)
	if err != nil {
		return err
	}
	said := s.done
	if sj.Spec.Suspend == s.suspend {
		said = "is not suspended"
		if s.suspend {
			said = "was suspended already"
		}
	} else {
		before := sj.DeepCopy()
		sj.Spec.Suspend = s.suspend
		if err := cluster.Patch(ctx, sj, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	if s.suspend && isRunFinished(sj) {
		said += "; its run has ended, and the next one will be held"
	}
	fmt.Fprintln(s.out, sequentialJobKind().qualifiedName(sj), said)
	return nil
}
