package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// pauseQueueCommand is `kubectl yardmaster queue pause` and `resume`.
type pauseQueueCommand struct {
	*environment

	pause bool
	// done says what a Queue is then, and not what it is if there was nothing to do.
	done, not string
}

func newPauseQueueCommand(env *environment) *cobra.Command {
	p := &pauseQueueCommand{environment: env, pause: true, done: "paused", not: "was paused already"}
	return p.command("pause", "Hold Queues",
		"Hold Queues. Workers get no more messages; what they have in hand they finish. Producers go on sending.")
}

func newResumeQueueCommand(env *environment) *cobra.Command {
	p := &pauseQueueCommand{environment: env, done: "resumed", not: "is not paused"}
	return p.command("resume", "Let Queues go on", "Let Queues go on that were paused.")
}

func (p *pauseQueueCommand) command(verb, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Long:              long + "\n\nThe exit code is 2 if any of them could not be changed; the others are all the same.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: queueKind().completeNames(p.environment),
		RunE:              func(command *cobra.Command, names []string) error { return p.run(command.Context(), names) },
	}
}

func (p *pauseQueueCommand) run(ctx context.Context, names []string) error {
	cluster, err := p.connect(p.clientConfig)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		if err := p.one(ctx, cluster, name); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (p *pauseQueueCommand) one(ctx context.Context, cluster *clusterConnection, name string) error {
	q := &v1alpha1.Queue{}
	if err := cluster.getByName(ctx, name, q); err != nil {
		return err
	}
	said := p.not
	if q.Spec.Paused != p.pause {
		said = p.done
		before := q.DeepCopy()
		q.Spec.Paused = p.pause
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := cluster.Patch(ctx, q, patch); err != nil {
			return explainConflict(queueKind().qualifiedName(q), err)
		}
	}
	fmt.Fprintln(p.out, queueKind().qualifiedName(q), said)
	return nil
}

// explainConflict puts it in our words that somebody else was faster.
func explainConflict(called string, err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%s was changed by somebody else in this moment; nothing was written: look at it, and try again", called)
	}
	return err
}
